"""Filters in bitstreams as a part: functions and commands that it adds."""

from codecnn.base.parts import Part

PART = Part(
    functions={
        "apply_update": "codecnn.signalling.updates:apply_update",
        "describe_carried": "codecnn.signalling.carried:describe_carried",
        "export_post_filter": "codecnn.signalling.nnpf:export_post_filter",
        "in_loop_codec": "codecnn.signalling.in_loop:in_loop_codec",
        "loop_filter": "codecnn.signalling.in_loop:LoopFilter",
        "loop_tables": "codecnn.signalling.in_loop:loop_tables",
        "carries_filter": "codecnn.signalling.carried:carries_filter",
        "filter_carried": "codecnn.signalling.carried:filter_carried",
    },
    commands={
        "codecnn.signalling.commands.adapt": "filter",
        "codecnn.signalling.commands.nnpf": "filter",
        "codecnn.signalling.commands.evaluate_loop": "evaluation",
    },
)
