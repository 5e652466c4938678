"""Writes the source of a C++ package from a seed: a Makefile and files that take long to compile.

Each file includes much of the standard library and instantiates templates of it, so that the
compiler needs 200 MiB and more for each, and reads as many headers as a real package has.

Run: ``python -m stallward.env.workloads.jobs.cpp_package DIR --files 40 --seed 1``
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program

_HEADERS: Final = (
    "algorithm", "functional", "iostream", "map", "memory", "numeric", "optional", "regex",
    "set", "sstream", "string", "tuple", "unordered_map", "variant", "vector",
)  # fmt: skip
_TYPES: Final = ("int", "long", "double", "std::string", "unsigned", "float", "short")
_FUNCTIONS: Final = 4

MAKEFILE: Final = """\
# make OUT=FOLDER; the objects and the program go to that folder.
OBJECTS := $(patsubst %.cpp,$(OUT)/%.o,$(wildcard *.cpp))
$(OUT)/program: $(OBJECTS)
\t$(CXX) -o $@ $^
$(OUT)/%.o: %.cpp
\t$(CXX) -std=c++17 -O2 -g -c -o $@ $<
.PHONY: clean
clean:
\trm -f $(OBJECTS) $(OUT)/program
"""


def _function(name: str, rng: random.Random) -> str:
    """Return a function that sorts, groups and searches values of random types."""
    key, value = rng.choice(_TYPES), rng.choice(_TYPES)
    depth = rng.randrange(2, 5)
    nested = f"std::vector<{value}>"
    for _ in range(depth):
        nested = f"std::map<{key}, {nested}>"
    return f"""
std::size_t {name}(const std::string &text) {{
  std::unordered_map<std::string, {nested}> groups;
  std::vector<std::tuple<{key}, {value}, std::variant<{key}, std::optional<{value}>, char>>> rows;
  std::regex words("([a-z]{{{rng.randrange(2, 9)}}})-([0-9]+)-{rng.randrange(999)}");
  for (std::sregex_iterator i(text.begin(), text.end(), words), end; i != end; ++i)
    groups[(*i)[1].str()];
  std::function<bool(const decltype(rows)::value_type &)> odd =
      [](const auto &row) {{ return std::get<0>(row) == {key}(); }};
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto &a, const auto &b) {{ return std::get<1>(a) < std::get<1>(b); }});
  std::stringstream joined;
  for (const auto &row : rows) joined << std::get<0>(row) << std::get<1>(row);
  return groups.size() + joined.str().size() + std::count_if(rows.begin(), rows.end(), odd);
}}
"""


def write_package(folder: Path, /, *, files: int = 40, seed: int = 1) -> None:
    """Write the Makefile and the files of the package."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    folder.mkdir(parents=True, exist_ok=True)
    includes = "".join(f"#include <{header}>\n" for header in _HEADERS)
    for number in range(files):
        functions = (_function(f"f{number}_{i}", rng) for i in range(_FUNCTIONS))
        text = includes + "".join(functions)
        (folder / f"part{number}.cpp").write_text(text, encoding="ascii")
    (folder / "main.cpp").write_text("int main() { return 0; }\n", encoding="ascii")
    (folder / "Makefile").write_text(MAKEFILE, encoding="ascii")


if __name__ == "__main__":
    run_program(__doc__, write_package)
