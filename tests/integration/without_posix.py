"""Remove from Python what Windows lacks, import every public name, hold a conversation.

The packages that this one builds on are imported before, since they look at ``sys.platform`` and
not at the attributes.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import boto3  # noqa: F401
import mcp  # noqa: F401
import redis  # noqa: F401
import tiktoken  # noqa: F401
from strands import Agent

# Names that the documentation of os and signal gives as "Availability: Unix" or "not Windows".
NOT_ON_WINDOWS = {
    os: (
        """
        chown chroot confstr ctermid fchdir fchown fdatasync fork forkpty fpathconf getegid geteuid getgid
        getgrouplist getgroups getloadavg getpgid getpgrp getpriority getresgid getresuid getsid getuid initgroups
        killpg lchown lockf major makedev minor mkfifo mknod nice openpty pathconf posix_fadvise posix_spawn pread
        preadv pwrite pwritev readv register_at_fork sched_getaffinity sched_setaffinity sched_yield sendfile setegid
        seteuid setgid setgroups setpgid setpriority setregid setreuid setsid setuid statvfs sync sysconf tcgetpgrp
        tcsetpgrp ttyname uname wait wait3 wait4 waitid writev O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC O_NDELAY
        O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_SYNC O_TMPFILE WEXITSTATUS WIFEXITED WIFSIGNALED WNOHANG
        WTERMSIG
        """
    ),
    signal: (
        """
        SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGPROF SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIGWINCH
        alarm getitimer pause pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigtimedwait sigwait
        sigwaitinfo
        """
    ),
}
MODULES = ["fcntl", "grp", "pwd", "posix", "pty", "resource", "spwd", "syslog", "termios", "tty"]

for module, names in NOT_ON_WINDOWS.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
if hasattr(os, "process_cpu_count"):
    os.process_cpu_count = os.cpu_count  # as os itself defines it where there is no affinity
for name in MODULES:
    sys.modules[name] = None

import strands_manga_memory as package  # noqa: E402
from strands_manga_memory.testing import ScriptedModel  # noqa: E402


def main(folder: Path) -> None:
    for name in package.__all__:
        getattr(package, name)
    durable = f"sqlite:///{folder}/memory.sqlite3"
    for turn in range(2):
        memory = package.MangaMemory.open(hot="memory://", durable=durable, memories=True)
        try:
            kwargs = memory.agent_kwargs(
                user_id="u1", session_id="s1", history="summarize", task_state=True
            )
            agent = Agent(
                model=ScriptedModel(["はい、あります。"]), callback_handler=None, **kwargs
            )
            assert len(agent.messages) == 2 * turn, agent.messages
            asyncio.run(agent.invoke_async("ベルセルクはありますか。"))
        finally:
            memory.close()
    print(f"{len(package.__all__)} names, {len(agent.messages)} messages")


main(Path(sys.argv[1]))
