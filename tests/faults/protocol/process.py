"""Steps of a process that uses the storage of a conversation."""

from strands_manga_memory.exceptions import OvertakenError, StoreUnavailableError
from strands_manga_memory.session.protocol.conversation_storage import ConversationStorage


def load_fully(storage: ConversationStorage) -> None:
    """Load a conversation, and show its messages to the agent."""
    storage.load()
    storage.complete()
    storage.local.adopt_window()


def save(storage: ConversationStorage) -> None:
    """Save a conversation's changes in the hot tier or, failing that, in the durable tier."""
    is_saved = False
    if storage.hot is not None:
        try:
            is_saved = storage.save_hot()
        except OvertakenError:
            raise
        except StoreUnavailableError:
            if storage.durable is None:
                raise
    if not is_saved:
        storage.save_durably()
