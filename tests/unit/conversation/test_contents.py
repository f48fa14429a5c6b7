"""A content that replaces another is never taken for one that its message had before."""

from strands.types.content import Message

from strands_manga_memory.conversation.contents import Contents


def _cut(message: Message, length: int) -> Message:
    return {**message, "content": [{"text": message["content"][0]["text"][:length]}]}


def test_no_content_is_where_an_earlier_one_of_its_message_was() -> None:
    contents = Contents()
    message: Message = {"role": "user", "content": [{"text": "x" * 400}], "tracking_id": "a"}
    addresses = [id(message["content"])]

    for length in range(399, 0, -1):  # each freed list is the next one that Python hands out
        shorter = _cut(message, length)
        contents.replace(message, shorter)
        message = shorter
        addresses.append(id(message["content"]))
        assert message["content"] == [{"text": "x" * length}]

    assert len(set(addresses)) == len(addresses)


def test_messages_that_left_are_forgotten() -> None:
    contents = Contents()
    for number in range(100):
        message: Message = {"role": "user", "content": [{"text": "long"}], "tracking_id": str(number)}
        contents.replace(message, _cut(message, 1))

    contents.forget_all_but([message])

    assert list(contents._addresses) == ["99"]
