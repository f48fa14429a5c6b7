"""Driver of one rival, which answers JSON requests on standard input.

The Python of the rival's environment runs this file, so it imports nothing of this repository but,
for ours, the package.
"""

import asyncio
import contextlib
import functools
import json
import os
import sys
import time
import warnings

URL = os.environ.get("RIVAL_REDIS", "")
ENDPOINT = os.environ.get("RIVAL_DYNAMODB", "")
FOLDER = os.environ.get("RIVAL_FOLDER", "")
TABLE = "rival"


def strands_model():
    """Return a model that answers ``ok to <text>``, and redacts messages with ``REDACT``."""
    from strands.models import Model

    class Echo(Model):
        def update_config(self, **config):
            pass

        def get_config(self):
            return {"model_id": "echo", "context_window_limit": 1_000_000}

        async def structured_output(self, *arguments, **keywords):
            raise NotImplementedError
            yield

        async def stream(self, messages, *arguments, **keywords):
            said = [block["text"] for block in messages[-1]["content"] if "text" in block]
            answer = f"ok to {said[-1][:40] if said else ''}"
            yield {"messageStart": {"role": "assistant"}}
            if said and "REDACT" in said[-1]:
                yield {"redactContent": {"redactUserContentMessage": "[redacted]"}}
                answer = "no"
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": answer}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn"}}

    return Echo()


class StrandsConversation:
    """Agent with a session manager that ``manager`` creates."""

    def __init__(self, manager, agent_id, window):
        from strands import Agent
        from strands.agent.conversation_manager import (
            NullConversationManager,
            SlidingWindowConversationManager,
        )

        trimming = (
            SlidingWindowConversationManager(window, pin_first=2)
            if window
            else NullConversationManager()
        )
        self.manager = manager
        self.agent = Agent(
            model=strands_model(),
            agent_id=agent_id,
            session_manager=manager,
            conversation_manager=trimming,
            callback_handler=None,
        )

    async def turn(self, text):
        await self.agent.invoke_async(text)

    def texts(self):
        return [
            block["text"]
            for message in self.agent.messages
            for block in message["content"]
            if "text" in block
        ]

    def delete(self, session):
        for arguments in ((), (session,)):
            try:
                return self.manager.delete_session(*arguments)
            except TypeError:
                continue
        raise NotImplementedError("it has no delete_session")


def dynamodb(service="client"):
    import boto3
    from botocore.config import Config

    config = Config(retries={"mode": "standard", "total_max_attempts": 1}, read_timeout=10)
    return getattr(boto3, service)(
        "dynamodb", region_name="us-east-1", endpoint_url=ENDPOINT, config=config
    )


# Clients are made once for each process, as an application would: what connecting costs is nobody's
# merit.


@functools.cache
def table(partition, sort):
    client = dynamodb()
    with contextlib.suppress(client.exceptions.ResourceInUseException):
        client.create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[
                {"AttributeName": partition, "KeyType": "HASH"},
                {"AttributeName": sort, "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": "S"} for name in (partition, sort)
            ],
        )
    return client


@functools.cache
def our_stores():
    from strands_manga_memory import open_hot_store, open_table

    durable = open_table(f"dynamodb://{TABLE}?region=us-east-1&endpoint={ENDPOINT}")
    durable.create_if_missing()
    return open_hot_store(f"{URL}?deadline=5"), durable


def ours(session, agent_id, window, ttl):
    from strands_manga_memory import TieredSessionManager, TtlPolicy

    hot, durable = our_stores()
    lives = TtlPolicy(mode="sliding", seconds=ttl, session=ttl) if ttl else None
    manager = TieredSessionManager(
        session, hot=hot, durable=durable, hot_deadline=5.0, durable_deadline=10.0, ttl=lives
    )
    return StrandsConversation(manager, agent_id, window)


@functools.cache
def redis_client(kind):
    return kind.from_url(URL)


def strands_file(session, agent_id, window, ttl):
    from strands.session import FileSessionManager

    return StrandsConversation(FileSessionManager(session, storage_dir=FOLDER), agent_id, window)


def strands_snapshot(session, agent_id, window, ttl):
    from strands.session import SnapshotSessionManager
    from strands.storage import LocalFileStorage

    return StrandsConversation(
        SnapshotSessionManager(session, storage=LocalFileStorage(FOLDER)), agent_id, window
    )


def aws_storage(session, agent_id, window, ttl):
    from strands.session import SnapshotSessionManager
    from strands_dynamodb_storage import DynamoDBStorage

    storage = DynamoDBStorage(TABLE, client=table("pk", "sk"), ttl_seconds=ttl)
    return StrandsConversation(SnapshotSessionManager(session, storage=storage), agent_id, window)


def redis_session(session, agent_id, window, ttl):
    import redis
    from redis_session_manager import RedisSessionManager

    return StrandsConversation(
        RedisSessionManager(session, redis_client=redis_client(redis.Redis), ttl_seconds=ttl),
        agent_id,
        window,
    )


@functools.cache
def without_module():
    """Return a client class that needs no RedisJSON."""
    import valkey

    class WithoutModule(valkey.Valkey):
        def execute_command(self, *arguments, **keywords):
            if arguments[0] == "JSON.SET":
                arguments = ("SET", arguments[1], arguments[3])
            elif arguments[0] == "JSON.GET":
                arguments = ("GET", arguments[1])
            return super().execute_command(*arguments, **keywords)

    return WithoutModule


def valkey_session(session, agent_id, window, ttl):
    from strands_valkey_session_manager import ValkeySessionManager

    return StrandsConversation(
        ValkeySessionManager(session, redis_client(without_module())), agent_id, window
    )


def dynamodb_session(session, agent_id, window, ttl):
    from strands_dynamodb_session_manager import DynamoDBSessionManager

    manager = DynamoDBSessionManager(
        session, TABLE, region_name="us-east-1", endpoint_url=ENDPOINT, ttl_seconds=ttl
    )
    return StrandsConversation(manager, agent_id, window)


def agentcore(session, agent_id, window, ttl):
    import bedrock_agentcore  # noqa: F401

    raise NotImplementedError("it needs the live AgentCore service")


class OpenAISession:
    """Adapter that calls the session with the user's message, then with the answer."""

    def __init__(self, session, ttl):
        import redis.asyncio
        from agents.extensions.memory import RedisSession

        self.session = RedisSession(
            session, redis_client=redis_client(redis.asyncio.Redis), ttl=ttl
        )
        self.kept = []

    async def turn(self, text):
        await self.session.get_items()
        await self.session.add_items([{"role": "user", "content": text}])
        await self.session.add_items([{"role": "assistant", "content": f"ok to {text[:40]}"}])

    async def restore(self):
        self.kept = await self.session.get_items()

    def texts(self):
        return [item["content"] for item in self.kept]

    def delete(self, session):
        asyncio.get_event_loop().create_task(self.session.clear_session())


def openai_session(session, agent_id, window, ttl):
    return OpenAISession(session, ttl)


class LangGraph:
    """Graph of one node that answers."""

    def __init__(self, saver, session):
        from langchain_core.messages import AIMessage
        from langgraph.graph import START, MessagesState, StateGraph

        graph = StateGraph(MessagesState)
        graph.add_node(
            "answer",
            lambda state: {"messages": [AIMessage(f"ok to {state['messages'][-1].content[:40]}")]},
        )
        graph.add_edge(START, "answer")
        self.saver, self.graph = saver, graph.compile(checkpointer=saver)
        self.config = {"configurable": {"thread_id": session}}

    async def turn(self, text):
        self.graph.invoke({"messages": [("user", text)]}, self.config)

    def texts(self):
        return [m.content for m in self.graph.get_state(self.config).values.get("messages", [])]

    def delete(self, session):
        self.saver.delete_thread(session)


def langgraph_aws(session, agent_id, window, ttl):
    return LangGraph(aws_saver(ttl), session)


@functools.cache
def aws_saver(ttl):
    from langgraph_checkpoint_aws import DynamoDBSaver

    table("PK", "SK")
    return DynamoDBSaver(TABLE, region_name="us-east-1", endpoint_url=ENDPOINT, ttl_seconds=ttl)


@functools.cache
def redis_saver(ttl):
    from langgraph_checkpoint_plainredis import RedisSaver

    return RedisSaver(url=URL, ttl=ttl)


def langgraph_redis(session, agent_id, window, ttl):
    return LangGraph(redis_saver(ttl), session)


async def gaps(work, every=0.001):
    """Run ``work`` and return the longest time in ms for which the event loop did nothing else."""
    longest, done = 0.0, asyncio.Event()

    async def tick():
        nonlocal longest
        last = time.perf_counter()
        while not done.is_set():
            await asyncio.sleep(every)
            now = time.perf_counter()
            longest, last = max(longest, now - last - every), now

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    try:
        await work
    finally:
        done.set()
        await ticking
    return longest * 1000


def answer(adapter, request, held):
    """Process a request, and return its result."""
    do = request["do"]
    if do == "open":
        held["it"] = adapter(
            request["session"],
            request.get("agent", "a"),
            request.get("window", 0),
            request.get("ttl"),
        )
        return {}
    if do == "turn":
        return {"stall": held["loop"].run_until_complete(gaps(held["it"].turn(request["text"])))}
    if do == "texts":
        if hasattr(held["it"], "restore"):
            held["loop"].run_until_complete(held["it"].restore())
        return {"texts": held["it"].texts()}
    if do == "delete":
        held["it"].delete(request["session"])
        held["loop"].run_until_complete(asyncio.sleep(0.05))
        return {}
    if do == "close":
        manager = getattr(held["it"], "manager", None)
        if hasattr(manager, "close"):
            manager.close()
        return {}
    raise ValueError(do)


def main():
    warnings.simplefilter("ignore")
    adapter, held = globals()[sys.argv[1]], {"loop": asyncio.new_event_loop()}
    asyncio.set_event_loop(held["loop"])
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            found = answer(adapter, json.loads(line), held)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps(found), file=out, flush=True)


if __name__ == "__main__":
    main()
