"""What the peers of examples/bench have in common: a request is a line of
JSON, and so is its reply.

    {"spec": {...}, "policy": "float32"}   what to work on from now on; answers {"settings": [...]}
    {"setting": "eager", "run": 10}        do it ten times; answers {"wall": seconds, "used": processor seconds}
    {"setting": "eager", "calls": 10}      the same, each call timed; answers {"times": [seconds, ...]}

A setting is built when it is first run. An exception is answered {"error": ...}.
"""
import gc
import json
import os
import sys
import time


def serve(version, start):
    """Answers requests until the input ends. start(spec, policy) returns the
    settings by name: functions that build the work and return it, a function
    without arguments."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to standard error

    def answer(r):
        replies.write(json.dumps(r) + "\n")
        replies.flush()

    answer({"version": version})
    settings, built = {}, {}
    for line in sys.stdin:
        q = json.loads(line)
        try:
            if "spec" in q:
                settings, built = start(q["spec"], q["policy"]), {}
                gc.collect()
                answer({"settings": list(settings)})
                continue
            name = q["setting"]
            if name not in built:
                built[name] = settings[name]()
            work = built[name]
            if "calls" in q:
                times = []
                for _ in range(q["calls"]):
                    wall = time.perf_counter()
                    work()
                    times.append(time.perf_counter() - wall)
                answer({"times": times})
                continue
            used, wall = time.process_time(), time.perf_counter()
            for _ in range(q["run"]):
                work()
            answer({"wall": time.perf_counter() - wall, "used": time.process_time() - used})
        except Exception as e:  # a setting that does not run here is an answer, too
            answer({"error": f"{type(e).__name__}: {e}"[:500]})
