"""Compiles kernels into one piece of object code. Imported only to compile: it imports numba."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from llvmlite import binding
from numba import config, njit, types

from kraft_codec.kernels.native import Kernel

# numba would optimise every helper by itself, and again in each that calls it; here all is optimised once, at the end.
config.OPT = type(config.OPT)(0)
_SPEED_LEVEL = 3


def compile_kernels(kernels: Mapping[str, Kernel], prefix: str, processor: str | None = None) -> bytes:
    """Object code: each kernel is `int32 <prefix><name>(int64 *result, void **, int64...)`.

    It is for this processor, to be loaded by LLVM; for `processor`, by LLVM's name, it is to be linked.

    numba's own calling convention is kept: the int32 is 0 unless the function raised, which no kernel does.
    """
    modules = [_module(function, prefix + name) for name, function in kernels.items()]
    module = modules[0]
    for further in modules[1:]:
        module.link_in(further)
    machine = _target_machine(processor)
    _optimise(module, machine, prefix)
    code: bytes = machine.emit_object(module)
    return code


def arity(kernel: Kernel) -> int:
    return len(inspect.signature(kernel).parameters)


def _module(function: Kernel, exported_name: str) -> Any:
    signature = types.int64(*[types.int64] * arity(function))
    compiled = njit(
        signature,
        error_model="numpy",
        boundscheck=False,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
    )(function)
    result = compiled.overloads[signature.args]
    text = result.library.get_llvm_str().replace(result.fndesc.llvm_func_name, exported_name)
    # Every function brings a slot for its Python environment, which code without Python objects never uses.
    text = re.sub(r"(?m)^@_ZN08NumbaEnv\S+ = common .*\n", "", text)
    return binding.parse_assembly(text)


def _optimise(module: Any, machine: Any, prefix: str) -> None:
    """Inlines helpers into the kernels, drops those that are no longer called, and optimises the rest."""
    for function in module.functions:
        if not function.is_declaration and not function.name.startswith(prefix):
            function.linkage = "internal"
    options = binding.create_pipeline_tuning_options(speed_level=_SPEED_LEVEL)
    passes = binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)


def _target_machine(processor: str | None) -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    if processor is not None:
        return target.create_target_machine(cpu=processor, opt=_SPEED_LEVEL, reloc="pic", codemodel="default")
    return target.create_target_machine(
        cpu=binding.get_host_cpu_name(),
        features=binding.get_host_cpu_features().flatten(),
        opt=_SPEED_LEVEL,
        reloc="pic",
        jit=True,
    )
