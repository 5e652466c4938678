"""Which files compiled code is made of, so that it is kept until one of them changes."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
from pathlib import Path
from typing import Final

import stallward

_FROM: Final = re.compile(r"from (stallward[\w.]*) import (\((?:[^)#]|#.*)*\)|[^\n#]*)")
_PLAIN: Final = re.compile(r"import (stallward[\w.]*)")
"""They find all imports, and a few words more, such as examples in a docstring. To parse the files
would take 300 ms at each start."""
_NAME: Final = re.compile(r"#.*|(\w+)")


def sources_hash(file: str, *versions: str) -> str:
    """Return a hash of a file, all modules of Stallward that it imports, and those they import.

    The packages around a module count only where a name is taken from them: importing
    ``agent.controllers.partition`` runs ``agent.controllers``, but compiled code can read nothing
    of that.

    Args:
        file: A file with kernels.
        versions: What else changes compiled code.
    """
    parts = sorted(_read(source)[0] for source in reachable(file))
    text = "\n".join([*parts, *versions, str(sys.implementation.cache_tag)])
    return hashlib.sha256(text.encode()).hexdigest()


def reachable(file: str) -> set[str]:
    """Return a file, the compiler, and all modules that they import, directly or not."""
    found: set[str] = set()
    todo = {file, _file_of(__package__)}
    while todo:
        found |= todo
        todo = set().union(*(_read(source)[1] for source in todo)) - found
    return found


@functools.cache
def _read(file: str) -> tuple[str, frozenset[str]]:
    """Return the name and the hash of a file, and the files that it imports."""
    data = Path(file).read_bytes()
    text = data.decode()
    imported = {_file_of(module) for module in _PLAIN.findall(text)}
    for module, names in _FROM.findall(text):
        parts = {_file_of(f"{module}.{name}") for name in _NAME.findall(names) if name}
        if "" in parts or not parts:  # a name that the module itself has
            imported.add(_file_of(module))
        imported |= parts
    return f"{Path(file).name} {hashlib.sha256(data).hexdigest()}", frozenset(imported - {""})


@functools.cache
def _file_of(module: str) -> str:
    """Return the file of a module; empty if there is no such module."""
    package, _, rest = module.partition(".")[2].partition(".")
    folder, _, name = f"{_folder(package)}/{rest.replace('.', '/')}".rstrip("/").rpartition("/")
    if f"{name}.py" in _names(folder):
        return f"{folder}/{name}.py"
    return f"{folder}/{name}/__init__.py" if "__init__.py" in _names(f"{folder}/{name}") else ""


@functools.cache
def _folder(package: str) -> str:
    """Return the folder of ``stallward.env`` and the like, of which each may be elsewhere."""
    folders = (f"{folder}/{package}" for folder in stallward.__path__)
    return next((folder for folder in folders if _names(folder)), "")


@functools.cache
def _names(folder: str) -> frozenset[str]:
    """Return the names in a folder; none if there is no such folder."""
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208 - faster
    except OSError:
        return frozenset()
