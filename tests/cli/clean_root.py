"""A root folder with the files of some of this host's packages and nothing else, in which a program runs as on a machine
that has only these."""

import os
import pathlib
import re
import subprocess

FIELDS = "${Package}\t${Provides}\t${Pre-Depends}, ${Depends}\n"
MERGED = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")  # links into /usr on today's Debian


def names_in(field):
    """The alternatives of each dependency, without versions and architectures."""
    return [[re.match(r"[\w.+-]+", word.strip()).group() for word in part.split("|")]
            for part in field.split(",") if part.strip()]


def with_dependencies(packages):
    """The names of these packages and of the installed ones that they need."""
    shown = subprocess.run(["dpkg-query", "--show", f"--showformat={FIELDS}"], capture_output=True, text=True, check=True)
    needs, providers = {}, {}
    for line in shown.stdout.splitlines():
        name, provided, depends = line.split("\t")
        needs[name] = names_in(depends)
        providers.setdefault(name, name)
        for (other,) in names_in(provided):
            providers.setdefault(other, name)
    found, open_names = set(), [[name] for name in packages]
    while open_names:
        choice = next((providers[name] for name in open_names.pop() if name in providers), None)
        if choice and choice not in found:
            found.add(choice)
            open_names += needs[choice]
    return found


class CleanRoot:
    def __init__(self, folder, packages):
        self.folder = pathlib.Path(folder)
        for name in ("usr", "proc", "dev", "tmp"):
            (self.folder / name).mkdir(parents=True)
        for name in MERGED:
            if pathlib.Path("/", name).is_symlink():
                (self.folder / "usr" / name).mkdir()
                (self.folder / name).symlink_to(f"usr/{name}")
        for package in packages:
            self.add(package)

    def add(self, package):
        listed = subprocess.run(["dpkg-query", "--listfiles", package], capture_output=True, text=True, check=True)
        for name in listed.stdout.splitlines():
            file, target = pathlib.Path(name), self.folder / name.lstrip("/")
            if not file.is_symlink() and not file.is_file() or name.startswith("/usr/share/doc/"):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(target):
                subprocess.run(["cp", "--no-dereference", "--link", file, target], check=False, capture_output=True)
            if not os.path.lexists(target):  # on another file system
                subprocess.run(["cp", "--no-dereference", file, target], check=True)

    def run(self, *command, environment=()):
        """Runs a command in this root, which needs no shell there; returns the ended process."""
        script = 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
        inside = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount"]
        return subprocess.run([*inside, "sh", "-c", script, str(self.folder), *map(str, command)],
                              env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **dict(environment)}, capture_output=True,
                              text=True, timeout=200, check=False)


def can_run():
    """Whether this process may mount and change its root."""
    as_user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return subprocess.run(["unshare", *as_user, "--mount", "mount", "--bind", "/proc", "/proc"], capture_output=True,
                          check=False).returncode == 0
