"""The public test kit: virtual time, gates, scripted models, a fake provider, and a stop at every step.

The parts of a fake provider's script (its own Burst, Reply, Text …) are in `andon.testing.provider`.
"""

from andon.testing.clock import DeadlockError, VirtualLoop, run_virtual, virtual
from andon.testing.explore import MODES, TREE_MODES, Exploration, Violation, explore
from andon.testing.gates import Gate
from andon.testing.provider import FakeProvider
from andon.testing.scene import Mode, Scenario, Scene, Tally
from andon.testing.script import Burst, Delay, Hang, Reply, ScriptedModel, ScriptError, Step, Yield

__all__ = [
    "MODES",
    "TREE_MODES",
    "Burst",
    "DeadlockError",
    "Delay",
    "Exploration",
    "FakeProvider",
    "Gate",
    "Hang",
    "Mode",
    "Reply",
    "Scenario",
    "Scene",
    "ScriptError",
    "ScriptedModel",
    "Step",
    "Tally",
    "Violation",
    "VirtualLoop",
    "Yield",
    "explore",
    "run_virtual",
    "virtual",
]
