"""What a kernel takes of a multiprocessor, and which instructions it is made of, read from its machine code.

`cuobjdump` and `nvdisasm` come with Triton. Registers that did not fit lie on the stack in local memory: a kernel
without either spills nothing. Loads into shared memory that run ahead of the loop that uses them are LDGSTS
(`cp.async`) or UTMALDG (TMA), products of matrices HMMA (`mma`) or HGMMA (`wgmma`). Those of a warp group
run beside each other until a wait for them; with a wait for each, ptxas has put them in a row.
"""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import triton
from benchmarks.kernels.standin import Loaded

PROGRAMS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
REGISTERS = 64 << 10
SHARED = 228 << 10
RESERVED = 1 << 10
"""Shared memory of a multiprocessor, and what the system takes of it for each program."""
WARPS, MOST = 64, 32
INSTRUCTIONS = {
    "wgmma": "HGMMA",
    "waits": r"WARPGROUP\.DEPBAR",
    "mma": "HMMA",
    "cp.async": "LDGSTS",
    "TMA": "UTMALDG",
    "16 bytes": r"LDG\S*\.128",
}
TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Taken:
    """Registers of a thread, bytes of local memory for what did not fit, bytes of shared memory, warps of a program."""

    registers: int
    spilled: int
    shared: int
    warps: int

    @property
    def programs(self) -> int:
        """That fit on one multiprocessor of sm_90; registers are given to a warp 256 at a time."""
        a_warp = -(-self.registers * 32 // 256) * 256
        by_registers = REGISTERS // max(a_warp * self.warps, 1)
        return min(by_registers, SHARED // (self.shared + RESERVED), WARPS // self.warps, MOST)


def takes(loaded: Loaded) -> Taken:
    """What one kernel takes."""
    return taken(_said(loaded.cubin, "cuobjdump", "--dump-resource-usage"), loaded)


def instructions(loaded: Loaded) -> dict[str, int]:
    """How often each of INSTRUCTIONS stands in it; takes half a second."""
    code = _said(loaded.cubin, "nvdisasm", "-c")
    return {name: len(re.findall(rf"\b{pattern}\b", code)) for name, pattern in INSTRUCTIONS.items()}


def taken(usage: str, loaded: Loaded) -> Taken:
    """From the line ` REG:40 STACK:0 SHARED:0 LOCAL:0 ...` that follows the name of the function."""
    match = re.search(rf"Function {re.escape(loaded.kernel)}:\s*\n?(.*)", usage)
    if match is None:
        raise ValueError(f"cuobjdump: no function {loaded.kernel} in {usage!r}")
    numbers = {key: int(number) for key, number in re.findall(r"([A-Z]+):(\d+)", match[1])}
    return Taken(numbers["REG"], numbers["STACK"] + numbers["LOCAL"], loaded.shared, loaded.warps)


def _said(cubin: bytes, program: str, argument: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(PROGRAMS / program), argument, file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout
