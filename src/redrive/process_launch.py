"""The few lines between fork and exec: change the user, die with the parent, become the program. Linux only.

Run as a script by `redrive.process`, never imported: `process_launch.py PARENT_PID SIGNAL UID:GID|- ARGV…`.
A script and not Popen's `preexec_fn`, since Python code between fork and exec can deadlock when the parent
has threads. Standard library only, and little of it: this is paid for at every start of a child.
"""

import ctypes
import os
import sys

FAILED_TO_LAUNCH = 127  # what a shell answers when it cannot run a command
PR_SET_PDEATHSIG = 1  # from linux/prctl.h


def become(parent_pid: int, death_signal: int, user: str, argv: list[str]) -> None:
    if user != "-":
        uid, gid = (int(part) for part in user.split(":"))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        os.umask(0o077)
    # After setuid, which would clear it again.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:  # it died before we asked: the signal would never come
        sys.exit(FAILED_TO_LAUNCH)
    os.execvp(argv[0], argv)  # noqa: S606


if __name__ == "__main__":
    try:
        become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
    except OSError as problem:
        sys.stderr.write(f"cannot run {sys.argv[4]}: {problem}\n")
        sys.exit(FAILED_TO_LAUNCH)
