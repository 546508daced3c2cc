"""Programs as a fresh interpreter would run them, forked from one that has imported torch already: that takes two seconds.

The fork runs the end of torch's import, which loads the entry points of vendors and of hccl-like, with the program's own environment and
sys.path. With FRESH_INTERPRETERS=1, as at night, each program has an interpreter of its own.
"""

import atexit
import functools
import os
import pickle
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import traceback
import types


def run(arguments, *, env=None, timeout=120, own=False):
    """subprocess.run([sys.executable, *arguments]) with its output as text. `arguments` begin with -c, -m or a file. With `own` an
    interpreter that imports torch itself.
    """
    arguments = [str(argument) for argument in arguments]
    environment = dict(os.environ if env is None else env)
    if own or os.environ.get("FRESH_INTERPRETERS", "0") != "0":
        return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=timeout)
    server = _server()
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{folder}/out", f"{folder}/err"]
        pickle.dump((arguments, environment, os.getcwd(), names), server.stdin)
        server.stdin.flush()
        pid = pickle.load(server.stdout)
        if not select.select([server.stdout], [], [], timeout)[0]:
            os.killpg(pid, signal.SIGKILL)
            pickle.load(server.stdout)
            raise subprocess.TimeoutExpired(arguments, timeout)
        code = pickle.load(server.stdout)
        return subprocess.CompletedProcess(arguments, code, *(open(name).read() for name in names))


@functools.cache
def _server():
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    environment.pop("PYTHONPATH", None)
    server = subprocess.Popen([sys.executable, __file__], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    atexit.register(lambda: (server.stdin.close(), server.wait()))
    return server


def _serve():
    """Answers each request with the number of its process and then with its exit code; returns in that process, with the arguments."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    while True:
        try:
            arguments, environment, folder, names = pickle.load(requests)
        except EOFError:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.close(requests.fileno())
            os.close(answers.fileno())
            for number, name in enumerate([os.devnull, *names]):
                os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), number)
            os.closerange(3, 256)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            return arguments
        for answer in (pid, None):
            pickle.dump(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if answer is None else answer, answers)
            answers.flush()


def _run(arguments):
    import torch

    first, *rest = arguments
    sys.path[0:1] = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    for folder in sys.path:
        if os.path.exists(custom := os.path.join(folder, "sitecustomize.py")):
            runpy.run_path(custom)
            break
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
        torch._import_device_backends()
    if first == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(first)))
        sys.argv = arguments
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    import torch.distributed  # noqa: F401

    _run(_serve())
