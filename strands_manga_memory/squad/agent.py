"""Agent for Agent Squad that runs a Strands agent and keeps the history in a Strands session."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
import weakref
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing
from typing import Any

from agent_squad.agents import Agent as SquadAgent
from agent_squad.agents import AgentOptions, AgentStreamResponse
from agent_squad.types import ConversationMessage, ParticipantRole
from strands import Agent
from strands.agent import AgentResult
from strands.hooks import AfterInvocationEvent, MessageAddedEvent
from strands.types.content import Message

from strands_manga_memory.arguments import PositiveSeconds, Seconds, checked, with_repr
from strands_manga_memory.exceptions import BusyError
from strands_manga_memory.messages.injection import message_text
from strands_manga_memory.scope import ConversationScope, checked_id
from strands_manga_memory.squad.handoff import Handoff, Handoffs
from strands_manga_memory.squad.turn_order import ConversationTurns
from strands_manga_memory.stores import HotStore

logger = logging.getLogger(__name__)

_ASSISTANT: Any = ParticipantRole.ASSISTANT.value
"""Role of an answer as a string, as in the answers of Agent Squad's own agents.
The type is ``Any`` because Agent Squad's annotations demand the enumeration.
"""

_Emit = Callable[[AgentStreamResponse | None], None]


@with_repr("name", "_tenant")
class SessionStrandsAgent(SquadAgent):
    """Agent for Agent Squad that answers requests with Strands agents.

    Each request gets a new Strands agent, restored by its session manager. The session is the only
    history and includes tool calls and results. The agent neither reads Agent Squad's chat history
    nor writes to Agent Squad's storage.

    Requests of one conversation run one after another. Requests of different conversations run in
    parallel, on any event loop. The invocation state of tools contains ``user_id``, ``session_id``,
    ``agent_id`` and ``tenant``, which ``additional_params`` cannot replace. A failed request is
    answered with ``failed_text``, and the error is logged.

    A tool or hook may interrupt a request. The reason of the interrupt is then the answer, and the
    user's next message is the response to the interrupt.

    A caller cancels a request by closing its stream, or by cancelling the task that waits for the
    answer. With ``streaming``, a request begins when the caller first reads the stream. If the
    caller stops reading without closing the stream, the request still runs to its end.

    Example::

        def build(scope: ConversationScope) -> Agent:
            return memory.agent(model, **vars(scope))

        options = AgentOptions(name="Orders", description="order status")
        squad.add_agent(SessionStrandsAgent(options, build))

    Args:
        options: Name, description and callbacks. ``save_chat`` is always off, because the session
            stores the messages.
        build: Function that returns a new Strands agent for a scope, with the scope's ``agent_id``
            and with new session and conversation managers. Called on a thread for each request.
        streaming: Whether to stream responses. Default False.
        hot: Hot store for leases (locks with an expiry), so that requests in other processes wait.
            None (default): only requests in this process wait, and the session managers merge
            turns that two processes save at the same time.
        handoffs: Store of the messages that other agents leave for this agent, read once per
            request. Default: None.
        tenant: Tenant of all users. None (default): no tenant; the users are separate from those of
            every tenant.
        wait: Seconds that a request waits for earlier requests of its conversation. Default 30.
        lease: Seconds until the lease of a dead or disconnected process expires. Live processes
            renew it. Default 2.
        grace: Seconds for which a cancelled request may continue to its end, before its task is
            cancelled. Default 5.
        failed_text: Answer to a request that failed.
        busy_text: Answer to a request that waited too long for earlier requests. Such a request is
            not stored.
        cancelled_text: Answer stored in the session for a request that was cancelled before its
            answer.

    Raises:
        ValueError: An argument is out of range.
    """

    @checked
    def __init__(
        self,
        options: AgentOptions,
        build: Callable[[ConversationScope], Agent],
        *,
        streaming: bool = False,
        hot: HotStore | None = None,
        handoffs: Handoffs | None = None,
        tenant: str | None = None,
        wait: Seconds = 30.0,
        lease: PositiveSeconds = 2.0,
        grace: Seconds = 5.0,
        failed_text: str = "Sorry, something went wrong. Please try again.",
        busy_text: str = "Your earlier message is still being answered. Try again in a moment.",
        cancelled_text: str = "(The request was cancelled before it was answered.)",
    ) -> None:
        super().__init__(options)
        if not self.id.strip("-"):
            raise ValueError(
                "options.name must contain ASCII letters or digits, from which the agent's id is"
                f" made; got {options.name!r:.80}"
            )
        if tenant is not None:
            checked_id("tenant", tenant)
        self.save_chat = False
        self._build = build
        self._streaming = streaming
        self._turns = ConversationTurns(hot, lease=lease)
        self._handoffs = handoffs
        self._tenant = tenant
        self._wait = wait
        self._grace = grace
        self._failed_text = failed_text
        self._busy_text = busy_text
        self._cancelled_text = cancelled_text
        self._used: weakref.WeakSet[Agent] = weakref.WeakSet()
        self._running: set[asyncio.Task[None]] = set()

    def is_streaming_enabled(self) -> bool:
        """Return whether the agent streams its responses."""
        return self._streaming

    async def process_request(
        self,
        input_text: str,
        user_id: str,
        session_id: str,
        chat_history: list[ConversationMessage],
        additional_params: dict[str, Any] | None = None,
    ) -> ConversationMessage | AsyncIterable[AgentStreamResponse]:
        """Answer a request of a user with a Strands agent.

        Args:
            input_text: Message of the user.
            user_id: Authenticated id of the user.
            session_id: Id of the session, unique within the user.
            chat_history: Not used.
            additional_params: Values for the invocation state of the agent's tools and hooks.

        Returns:
            The answer. With ``streaming``, a stream of the answer's chunks, with the whole answer
            at its end.
        """
        replies = self._replies(input_text, user_id, session_id, additional_params or {})
        if self._streaming:
            return replies
        final = _message(self._failed_text)
        async with aclosing(replies):
            async for reply in replies:
                final = reply.final_message or final
        return final

    async def _replies(
        self, text: str, user_id: str, session_id: str, params: dict[str, Any]
    ) -> AsyncGenerator[AgentStreamResponse, None]:
        channel: asyncio.Queue[AgentStreamResponse | None] = asyncio.Queue()
        gone = threading.Event()
        turn = asyncio.create_task(
            self._answer(text, user_id, session_id, params, channel.put_nowait, gone)
        )
        self._running.add(turn)
        turn.add_done_callback(self._running.discard)
        turn.add_done_callback(lambda _: channel.put_nowait(None))
        try:
            while (reply := await channel.get()) is not None:
                yield reply
        finally:
            # The stream was closed early. If Agent Squad only stops reading, the task continues.
            if not turn.done():
                gone.set()
                asyncio.get_running_loop().call_later(self._grace, turn.cancel)

    async def _answer(
        self,
        text: str,
        user_id: str,
        session_id: str,
        params: dict[str, Any],
        emit: _Emit,
        gone: threading.Event,
    ) -> None:
        try:
            scope = ConversationScope(user_id, session_id, self.id, tenant=self._tenant)
            async with self._turns.wait_for_turn(scope, wait=self._wait):
                if gone.is_set():  # cancelled before its turn began
                    return
                final = await self._turn(scope, text, params, emit, gone)
        except BusyError:
            logger.warning(
                "agent=<%s>, wait=<%s> | a request waited too long for earlier requests",
                self.id,
                self._wait,
            )
            self._emit_answer(self._busy_text, emit)
        except Exception as error:  # Agent Squad would show the error's text to the user
            kind = type(error).__name__
            logger.error("agent=<%s>, error=<%s> | a request failed", self.id, kind)  # noqa: TRY400 - the traceback may be private
            logger.debug("agent=<%s> | a request failed", self.id, exc_info=True)
            self._emit_answer(self._failed_text, emit)
        else:
            emit(AgentStreamResponse(final_message=final))

    async def _turn(
        self,
        scope: ConversationScope,
        text: str,
        params: dict[str, Any],
        emit: _Emit,
        gone: threading.Event,
    ) -> ConversationMessage:
        agent = await asyncio.to_thread(self._build_agent, scope)
        questions = _open_questions(agent)
        handoffs: list[Handoff] = []
        if self._handoffs is not None and not questions:
            handoffs = await asyncio.to_thread(self._handoffs.read, scope)
        prompt: Any = text
        if questions:
            prompt = [
                {"interruptResponse": {"interruptId": id_, "response": text}} for id_ in questions
            ]
        elif handoffs:
            prompt = [{"text": text}, *({"text": handoff.text} for handoff in handoffs)]
        about: dict[str, Any] = {"agent_name": self.name, "messages": agent.messages}
        agent.hooks.add_callback(AfterInvocationEvent, self._add_missing_answer)
        tracking = await self.callbacks.on_agent_start(
            **about,
            payload_input=text,
            additional_params=params,
            user_id=scope.user_id,
            session_id=scope.session_id,
        )
        result: AgentResult | None = None
        is_streamed = False
        async for event in agent.stream_async(
            prompt, invocation_state={**params, **vars(scope)}, cancel_signal=gone
        ):
            if "data" in event:
                await self.callbacks.on_llm_new_token(event["data"])
                emit(AgentStreamResponse(text=event["data"]))
                is_streamed = True
            result = event.get("result", result)
        reasons = [] if result is None else _interrupt_reasons(result)
        answer_text = "" if result is None else message_text(result.message)
        shown = "\n".join(filter(None, [answer_text, *reasons]))
        if reasons:  # Strands does not stream them
            emit(
                AgentStreamResponse(text=shown.removeprefix(answer_text) if is_streamed else shown)
            )
        answer = _message(shown)
        try:
            if self._handoffs is not None and handoffs:
                await asyncio.to_thread(self._handoffs.remove, scope, handoffs)
            await self.callbacks.on_agent_end(
                **about, response=answer, agent_tracking_info=tracking
            )
        except Exception as error:  # the session has the answer, so the user must get it
            logger.warning(
                "agent=<%s>, error=<%s> | cleanup after an answer failed",
                self.id,
                type(error).__name__,
            )
            logger.debug("agent=<%s> | cleanup after an answer failed", self.id, exc_info=True)
        return answer

    def _build_agent(self, scope: ConversationScope) -> Agent:
        agent = self._build(scope)
        if agent in self._used:
            raise ValueError(
                "build must return a new agent for each request, got one from an earlier request"
            )
        if agent.agent_id != scope.agent_id:
            raise ValueError(
                f"build must give the agent the scope's agent_id {scope.agent_id!r:.80}, got"
                f" {agent.agent_id!r:.80}"
            )
        self._used.add(agent)
        return agent

    async def _add_missing_answer(self, event: AfterInvocationEvent) -> None:
        messages, result = event.agent.messages, event.result
        is_cancelled = result is not None and result.stop_reason == "cancelled"
        # Otherwise, the model would answer this request together with the next request.
        if (result is None or is_cancelled) and messages and messages[-1]["role"] == "user":
            text = self._cancelled_text if is_cancelled else self._failed_text
            answer: Message = {
                "role": "assistant",
                "content": [{"text": text}],
                "tracking_id": str(uuid.uuid4()),
            }
            messages.append(answer)
            await event.agent.hooks.invoke_callbacks_async(
                MessageAddedEvent(agent=event.agent, message=answer)
            )

    def _emit_answer(self, text: str, emit: _Emit) -> None:
        emit(AgentStreamResponse(text=text))
        emit(AgentStreamResponse(final_message=_message(text)))


def _open_questions(agent: Agent) -> list[str]:
    state = agent.take_snapshot(include=["interrupt_state"]).data["interrupt_state"]
    return (
        [id_ for id_, one in state["interrupts"].items() if one["response"] is None]
        if state["activated"]
        else []
    )


def _interrupt_reasons(result: AgentResult) -> list[str]:
    return [
        one.reason if isinstance(one.reason, str) else f"{one.name}: {one.reason}"
        for one in result.interrupts or []
    ]


def _message(text: str) -> ConversationMessage:
    return ConversationMessage(role=_ASSISTANT, content=[{"text": text}])
