"""DGL's measurements: the Python environment, the data sets, and the scripts."""
import json, os, subprocess

from ours import output_of
from rows import FAKE

HERE = os.path.dirname(os.path.abspath(__file__))
# The scripts must not create `__pycache__` in this folder.
ENV = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


class Peer:
    """The environment and the data sets are created in `folder`, and reused by later runs."""

    def __init__(self, python, folder, scripts=HERE):
        self.scripts, self.data = scripts, {}
        self.python = python or environment(os.path.join(folder, "venv"))
        # The results of the scripts in this round, by command line, because one run prints several results.
        self.printed = {}

    def prepare(self, names, given, folder, write_fake):
        """Finds or generates the data sets of these names, and returns their folders by name."""
        for name in names:
            found = [path for path in given if os.path.basename(os.path.normpath(path)) == name]
            self.data[name] = found[0] if found else self.make(name, os.path.join(folder, "data"), write_fake)
        return self.data

    def make(self, name, folder, write_fake):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
        print(f"generating {path}", flush=True)
        # The data set is written under another name and renamed at the end, so that no incomplete data set is used.
        unfinished = os.path.join(folder, "unfinished")
        if name == FAKE:
            os.makedirs(unfinished, exist_ok=True)
            subprocess.run([write_fake, os.path.join(unfinished, name)], check=True)
        else:
            script = os.path.join(self.scripts, "generate.py")
            subprocess.run([self.python, script, unfinished, name[:-len("-like")]], env=ENV, check=True)
        os.rename(os.path.join(unfinished, name), path)
        return path

    def value(self, script):
        """Returns one result of a script. The script runs once per round."""
        command = [self.python, os.path.join(self.scripts, script.file), self.data[script.data], *script.args.split()]
        key = " ".join(command)
        if key not in self.printed:
            self.printed[key] = parse(output_of(command, env=ENV))
        if script.what not in self.printed[key]:
            raise RuntimeError(f"{script.file} printed no {script.what}")
        return self.printed[key][script.what]


def parse(text):
    """Returns the results in the output of a script by name. Lines that libraries print are ignored."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {line["what"]: line["value"] for line in lines}


def environment(folder):
    """Returns the Python of an environment with the packages of requirements.txt, which is created if necessary."""
    python, whole = os.path.join(folder, "bin", "python"), os.path.join(folder, "installed")
    # The file `installed` is written last, so that an incomplete environment is installed again.
    if not os.path.exists(whole):
        print(f"creating {folder}, downloading 2 GB of packages", flush=True)
        subprocess.run(["python3", "-m", "venv", folder], check=True)
        requirements = os.path.join(HERE, "requirements.txt")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--requirement", requirements], check=True)
        open(whole, "w").close()
    return python
