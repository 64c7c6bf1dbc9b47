"""`docs/python-inputs.md` has a line for each argument, with a test that has it."""

import inspect
import pathlib
import re

import kiln

TESTS = pathlib.Path(__file__).parents[1]
TABLE = TESTS.parents[2] / "docs/python-inputs.md"

FUNCTIONS = {
    "Dataset.open": kiln.Dataset.open,
    "Dataset.save": kiln.Dataset.save,
    "Dataset.from_arrays": kiln.Dataset.from_arrays,
    "Dataset.from_pyg": kiln.Dataset.from_pyg,
    "Dataset.from_dgl": kiln.Dataset.from_dgl,
    "Dataset.from_scipy": kiln.Dataset.from_scipy,
    "NeighborLoader": kiln.NeighborLoader,
    "LinkNeighborLoader": kiln.LinkNeighborLoader,
}


def arguments(function):
    return {name for name in inspect.signature(function).parameters if name != "self"}


def table():
    """Returns the lines of the table as tuples of the section, the argument and the test."""
    lines, section = [], None
    for line in TABLE.read_text().splitlines():
        if line.startswith("## "):
            section = re.match(r"## `([^`]+)`", line)[1]
        elif line.startswith("| `"):
            name, test = re.match(r"\| `(\w+)` \| .+ \| `(\w+)` \|$", line).groups()
            lines.append((section, name, test))
    return lines


def test_each_argument_has_a_line():
    expected = {(section, name) for section, function in FUNCTIONS.items() for name in arguments(function)}
    inherited = arguments(kiln.NeighborLoader) - {"input_nodes"}
    expected -= {("LinkNeighborLoader", name) for name in inherited}
    assert {(section, name) for section, name, _ in table()} == expected


def test_each_line_names_a_test_that_has_its_argument():
    texts = [path.read_text() for path in TESTS.glob("*/test_*.py")]
    for section, name, test in table():
        found = [text for text in texts if f"def {test}(" in text]
        assert len(found) == 1, f"{section}: no test is named {test}"
        assert re.search(rf"\b{name}\b", found[0]), f"{section}: the file of {test} does not contain {name}"
