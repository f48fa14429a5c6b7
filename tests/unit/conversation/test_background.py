"""A background run that is stopped ends with an error, not with the process."""

import pytest

from strands_manga_memory.conversation.background import BackgroundTask


def test_a_stopped_run_raises_an_error_with_its_cause() -> None:
    async def stopped() -> None:
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match="the run was stopped by SystemExit") as caught:
        BackgroundTask(stopped).result(10)
    assert isinstance(caught.value.__cause__, SystemExit)
