"""schedules.json: learning rates of each schedule at some steps.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11; the cases of OneCycle with PyTorch 2.15.0's OneCycleLR,
in float64.
Re-run: python make_schedules.py (see README.md).
"""

import json
import subprocess
import sys

from common import case, keras, np, write

cases = []


def add(name, cls, steps, **args):
    schedule = getattr(keras.optimizers.schedules, cls)(**args)
    # In training the step is an integer variable; a float32 stands for it here, which holds all these numbers.
    rate = [float(schedule(keras.ops.convert_to_tensor(s, "float32"))) for s in steps]
    cases.append(case(name, {"class_name": cls, **args}, {"rate": np.array(rate, np.float32)}, {"step": np.array(steps, np.float32)}))


# In a process of its own: PyTorch and TensorFlow cannot be loaded into one.
ONE_CYCLE = """
import json, sys, torch
args = json.loads(sys.argv[1])
optimizer = torch.optim.SGD([torch.zeros(1)], lr=1)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, cycle_momentum=False, **args)
rates = schedule.get_last_lr()
for _ in range(args["total_steps"] - 1):
    optimizer.step()
    schedule.step()
    rates += schedule.get_last_lr()
print(json.dumps(rates))
"""


def one_cycle(name, steps, max_learning_rate, **args):
    out = subprocess.run([sys.executable, "-c", ONE_CYCLE, json.dumps({"max_lr": max_learning_rate, **args})],
                         check=True, capture_output=True, text=True).stdout
    rates = json.loads(out)
    cases.append(case(name, {"class_name": "OneCycle", "max_learning_rate": max_learning_rate, **args},
                      {"rate": np.array([rates[s] for s in steps], np.float32)}, {"step": np.array(steps, np.float32)}))


AT = [0, 1, 2, 5, 9, 10, 11, 15, 20, 25, 30, 33, 100]
add("exponential", "ExponentialDecay", AT, initial_learning_rate=0.05, decay_steps=10, decay_rate=0.96)
add("exponential_staircase", "ExponentialDecay", AT, initial_learning_rate=0.1, decay_steps=3, decay_rate=0.96, staircase=True)
add("inverse_time", "InverseTimeDecay", AT, initial_learning_rate=0.1, decay_steps=10, decay_rate=0.96)
add("inverse_time_staircase", "InverseTimeDecay", AT, initial_learning_rate=0.1, decay_steps=10, decay_rate=0.96, staircase=True)
add("piecewise", "PiecewiseConstantDecay", [0, 99, 100, 101, 105, 110, 111, 120, 121, 999], boundaries=[100, 110, 120],
    values=[1.0, 0.1, 0.01, 0.001])
add("polynomial", "PolynomialDecay", AT, initial_learning_rate=0.05, decay_steps=10)
add("polynomial_power", "PolynomialDecay", AT, initial_learning_rate=0.05, decay_steps=20, end_learning_rate=0.0, power=0.5)
add("polynomial_square", "PolynomialDecay", AT, initial_learning_rate=0.05, decay_steps=20, end_learning_rate=0.01, power=2.0)
add("polynomial_cycle", "PolynomialDecay", AT, initial_learning_rate=0.05, decay_steps=10, end_learning_rate=0.001, cycle=True)
add("polynomial_rising", "PolynomialDecay", AT, initial_learning_rate=0.001, decay_steps=20, end_learning_rate=0.1)
FAR = [0, 1, 250, 500, 750, 999, 1000, 1001, 1250, 1500, 2000, 2500, 2999, 3001, 5000, 6999, 7001, 10000]
add("cosine", "CosineDecay", FAR, initial_learning_rate=1.0, decay_steps=1000)
add("cosine_alpha", "CosineDecay", FAR, initial_learning_rate=0.5, decay_steps=1000, alpha=0.1)
add("cosine_warmup", "CosineDecay", FAR, initial_learning_rate=0.0, decay_steps=1000, warmup_target=10.0, warmup_steps=1500)
add("cosine_warmup_alpha", "CosineDecay", FAR, initial_learning_rate=0.1, decay_steps=2000, alpha=0.2, warmup_target=2.0, warmup_steps=500)
add("cosine_warmup_none", "CosineDecay", FAR, initial_learning_rate=0.1, decay_steps=2000, warmup_target=2.0)
add("restarts", "CosineDecayRestarts", FAR, initial_learning_rate=1.0, first_decay_steps=1000)
add("restarts_equal", "CosineDecayRestarts", FAR, initial_learning_rate=1.0, first_decay_steps=1000, t_mul=1.0)
add("restarts_lower", "CosineDecayRestarts", FAR, initial_learning_rate=1.0, first_decay_steps=1000, m_mul=0.9, alpha=0.1)
add("restarts_slower", "CosineDecayRestarts", FAR, initial_learning_rate=0.1, first_decay_steps=300, t_mul=1.5, m_mul=0.5)

ALL = [0, 1, 5, 14, 28, 29, 30, 31, 50, 58, 59, 80, 98, 99]
one_cycle("one_cycle", ALL, 0.1, total_steps=100)
one_cycle("one_cycle_linear", ALL, 0.1, total_steps=100, anneal_strategy="linear", pct_start=0.25, div_factor=10.0, final_div_factor=100.0)
one_cycle("one_cycle_three_phase", ALL, 0.1, total_steps=100, three_phase=True)
one_cycle("one_cycle_three_phase_linear", ALL, 1.0, total_steps=100, three_phase=True, anneal_strategy="linear", pct_start=0.35)

write("schedules.json", cases)
