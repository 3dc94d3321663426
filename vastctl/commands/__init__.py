"""The table of commands: name -> module and one line of help. Nothing else is imported here."""

from typing import Final

# In the order of the overview; each group is a purpose.
GROUPS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Run something", ("run", "plan", "offers", "rent", "demo")),
    ("See what is going on", ("ls", "show", "explain", "jobs", "job", "logs", "events")),
    ("Work on a machine", ("exec", "ssh", "push", "pull", "collect")),
    ("End it", ("destroy", "destroy-all")),
    ("Housekeeping", ("doctor", "config", "daemon", "rpc", "version", "help")),
)

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("run", "rent a machine, run a command on it, bring results home, destroy it"),
    "plan": ("plan", "size a task and show the three options; spends nothing"),
    "offers": ("offers", "search and rank offers"),
    "rent": ("rent", "rent one offer to work on interactively"),
    "demo": ("demo", "see the whole story on a private simulated Vast, at no cost"),
    "ls": ("ls", "list machines, what they cost and when they end"),
    "show": ("show", "show one machine"),
    "explain": ("explain", "tell one machine's story, and what the watchdogs would do next"),
    "jobs": ("jobs", "list jobs"),
    "job": ("job", "show, cancel, wait for or retry a job"),
    "logs": ("logs", "print or follow a job's log"),
    "events": ("events", "print or follow the audit trail"),
    "exec": ("exec", "run a command on a machine with your own OpenSSH"),
    "ssh": ("ssh", "open a shell on a machine with your own OpenSSH"),
    "push": ("push", "copy files to a machine"),
    "pull": ("pull", "copy files from a machine"),
    "collect": ("collect", "bring declared results home now"),
    "destroy": ("destroy", "collect, destroy, and wait for the proof that billing ended"),
    "destroy-all": ("destroy", "collect and destroy every machine, and wait for the proof"),
    "doctor": ("doctor", "check key, credit, SSH, tools and disk before money is spent"),
    "config": ("config", "read or change settings"),
    "daemon": ("daemon", "start, stop or look at vastd itself"),
    "rpc": ("rpc", "call any method of vastd with raw JSON"),
    "version": ("version", "print the versions of vastctl and vastd"),
    "help": ("help", "print this overview, or the help of a command"),
}

ALIASES: Final[dict[str, str]] = {"list": "ls", "status": "show"}
