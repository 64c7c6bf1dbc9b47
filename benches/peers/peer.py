"""DGL's side: its Python environment, its data, and its scripts."""
import json, os, subprocess

from ours import output_of
from rows import FAKE

HERE = os.path.dirname(os.path.abspath(__file__))
# Scripts of this folder leave no `__pycache__` behind.
ENV = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


class Peer:
    """What was made once is kept in `folder` for the next run."""

    def __init__(self, python, folder, scripts=HERE):
        self.scripts, self.data = scripts, {}
        self.python = python or environment(os.path.join(folder, "venv"))
        # What the scripts printed in this round, by command line: one run gives several results.
        self.printed = {}

    def prepare(self, names, given, folder, write_fake):
        """Finds or makes the data sets of these names."""
        for name in names:
            found = [path for path in given if os.path.basename(os.path.normpath(path)) == name]
            self.data[name] = found[0] if found else self.make(name, os.path.join(folder, "data"), write_fake)
        return self.data

    def make(self, name, folder, write_fake):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
        print(f"making {path}", flush=True)
        # Made under another name, so that an incomplete data set is not taken for a whole one.
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
        """One result of a script, which runs once a round."""
        command = [self.python, os.path.join(self.scripts, script.file), self.data[script.data], *script.args.split()]
        key = " ".join(command)
        if key not in self.printed:
            self.printed[key] = parse(output_of(command, env=ENV))
        if script.what not in self.printed[key]:
            raise RuntimeError(f"{script.file} printed no {script.what}")
        return self.printed[key][script.what]


def parse(text):
    """The results among the lines of a script; libraries print other lines."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {line["what"]: line["value"] for line in lines}


def environment(folder):
    """The Python of a virtual environment with the packages of requirements.txt, made unless it exists."""
    python, whole = os.path.join(folder, "bin", "python"), os.path.join(folder, "installed")
    # The file is written last, so that an incomplete environment is made again.
    if not os.path.exists(whole):
        print(f"making {folder}, which downloads 2 GB of packages", flush=True)
        subprocess.run(["python3", "-m", "venv", folder], check=True)
        requirements = os.path.join(HERE, "requirements.txt")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--requirement", requirements], check=True)
        open(whole, "w").close()
    return python
