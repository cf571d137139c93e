"""Programs that a comparison runs: alone, or one for each rank."""
import concurrent.futures
import os
import secrets
import subprocess

TIMEOUT_S = 300


class Failure(Exception):
    """One line for the user."""


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no output"


def run(command, environment=None, timeout=TIMEOUT_S):
    """The standard output of a command that ends well."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                              env=dict(os.environ, **(environment or {})))
    except FileNotFoundError:
        raise Failure(f"{command[0]} is missing")
    except subprocess.TimeoutExpired:
        raise Failure(f"no end after {timeout} s: {' '.join(command)}")
    if done.returncode != 0:
        raise Failure(f"code {done.returncode} from {' '.join(command)}: {last_line(done.stderr)}")
    return done.stdout


def rank_environment(rank, ranks, address, port, token):
    return {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": address,
            "MASTER_PORT": str(port), "GRAPEVINE_JOB_TOKEN": token}


def run_ranks(command, ranks, prefix=lambda rank: [], address="127.0.0.1", environment=None):
    """The standard outputs of `ranks` processes that find each other by the variables of torchrun.

    prefix(rank): words before the command, e.g. of a network namespace.
    """
    # Below the ports that the system gives to clients.
    port, token = 20000 + secrets.randbelow(10000), secrets.token_hex(16)
    processes = []
    for rank in range(ranks):
        variables = dict(os.environ, **rank_environment(rank, ranks, address, port, token),
                         **(environment or {}))
        processes.append(subprocess.Popen(prefix(rank) + command, env=variables, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return ends_of(processes, command)


def ends_of(processes, command):
    """The first process that fails ends the others, which may wait for it."""
    with concurrent.futures.ThreadPoolExecutor(len(processes)) as readers:
        ends = {readers.submit(process.communicate): process for process in processes}
        try:
            for end in concurrent.futures.as_completed(ends, timeout=TIMEOUT_S):
                if ends[end].returncode != 0:
                    raise Failure(f"code {ends[end].returncode} from {' '.join(command)}: "
                                  f"{last_line(end.result()[1])}")
        except concurrent.futures.TimeoutError:
            raise Failure(f"no end after {TIMEOUT_S} s: {' '.join(command)}")
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
        return [end.result()[0] for end in ends]
