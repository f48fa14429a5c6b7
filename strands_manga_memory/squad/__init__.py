"""Integration of Strands agents and their sessions with Agent Squad. Needs the extra ``squad``."""

try:
    import agent_squad.agents  # noqa: F401 - fails here, with the name of the extra, if it is not installed
except ImportError as error:
    raise ImportError(
        "strands_manga_memory.squad needs Agent Squad: pip install 'strands-manga-memory[squad]'"
    ) from error

from strands_manga_memory.exceptions import BusyError
from strands_manga_memory.squad.agent import SessionStrandsAgent
from strands_manga_memory.squad.chat_storage import SessionChatStorage
from strands_manga_memory.squad.handoff import Handoff, Handoffs
from strands_manga_memory.squad.turn_order import ConversationTurns

__all__ = [
    "BusyError",
    "ConversationTurns",
    "Handoff",
    "Handoffs",
    "SessionChatStorage",
    "SessionStrandsAgent",
]
