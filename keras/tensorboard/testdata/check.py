"""Decodes event files with TensorBoard's own reader and prints what is in them: python check.py FILE...

Needs tensorboard (made with 2.20).
"""

import sys

from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto import event_pb2
from tensorboard.util import tensor_util

for path in sys.argv[1:]:
    for raw in RawEventFileLoader(path).Load():
        event = event_pb2.Event.FromString(raw)
        if event.file_version:
            print("version", event.file_version)
        for v in event.summary.value:
            print(event.step, v.tag, v.metadata.plugin_data.plugin_name, v.metadata.data_class, tensor_util.make_ndarray(v.tensor).tolist())
