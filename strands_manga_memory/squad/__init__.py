"""Agent Squad: agents whose history belongs to their Strands session, and one history for the whole squad [extra: squad]."""

try:
    import agent_squad.agents  # noqa: F401 - tells whether the extra is there before anything else needs it
except ImportError as error:
    raise ImportError("strands_manga_memory.squad needs Agent Squad: pip install 'strands-manga-memory[squad]'") from error

from strands_manga_memory.squad.agent import SessionStrandsAgent
from strands_manga_memory.squad.chat_storage import SessionChatStorage
from strands_manga_memory.squad.handoff import Handoff, Handoffs

__all__ = ["Handoff", "Handoffs", "SessionChatStorage", "SessionStrandsAgent"]
