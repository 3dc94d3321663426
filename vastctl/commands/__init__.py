"""The table of commands: name -> module and one line of help. Nothing else is imported here."""

from typing import Final

# In the order of the overview; each group is a purpose.
GROUPS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Run something", ("run", "plan", "offers", "provision", "rent", "demo")),
    ("See what is going on", ("ls", "show", "explain", "jobs", "job", "logs", "events", "cost")),
    ("Work on a machine", ("up", "setup", "exec", "ssh", "push", "pull", "collect")),
    ("Pause or end it", ("stop", "start", "lease", "policy", "down", "destroy", "destroy-all")),
    (
        "Housekeeping",
        (
            *("reconcile", "adopt", "release", "hosts"),
            *("doctor", "budget", "config", "daemon", "export", "import", "completion", "rpc"),
            *("version", "help"),
        ),
    ),
)

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("run", "rent a machine, run a command on it, bring results home, destroy it"),
    "plan": ("plan", "size a task and show the three options; spends nothing"),
    "offers": ("offers", "search and rank offers"),
    "provision": ("provision", "show the three options for a task, and rent the one you choose"),
    "rent": ("rent", "rent one offer to work on interactively"),
    "demo": ("demo", "see the whole story on a private simulated Vast, at no cost"),
    "ls": ("ls", "list machines, what they cost and when they end"),
    "show": ("show", "show one machine"),
    "explain": ("explain", "tell one machine's story, and what the watchdogs would do next"),
    "jobs": ("jobs", "list jobs"),
    "job": ("job", "show, cancel, wait for or retry a job"),
    "logs": ("logs", "print or follow a job's log"),
    "events": ("events", "print or follow the audit trail"),
    "cost": ("cost", "tell what was spent on what, and how long credit and caps last"),
    "budget": ("budget", "show or change the caps on spending"),
    "hosts": ("hosts", "list what is known of machines, block one or allow it again"),
    "up": ("up", "have a machine to work on: this project's, or a new one"),
    "setup": ("setup", "send the code, install what it needs, and prove that it works"),
    "exec": ("exec", "run a command on a machine with your own OpenSSH"),
    "ssh": ("ssh", "open a shell on a machine with your own OpenSSH"),
    "push": ("push", "copy files to a machine"),
    "pull": ("pull", "copy files from a machine"),
    "collect": ("collect", "bring declared results home now"),
    "stop": ("stop", "give the GPU back and keep the disk, which goes on billing"),
    "start": ("start", "have a stopped machine back"),
    "lease": ("lease", "tell what bounds the bill of a machine, and for how long"),
    "policy": ("policy", "show or change what one machine is allowed"),
    "down": ("down", "collect, destroy this project's machine, and tell what it came to"),
    "destroy": ("destroy", "collect, destroy, and wait for the proof that billing ended"),
    "destroy-all": ("destroy", "collect and destroy every machine, and wait for the proof"),
    "reconcile": ("reconcile", "compare with Vast now; list, or end, machines nobody answers for"),
    "adopt": ("adopt", "take an instance over that this vastd did not rent"),
    "release": ("release", "let a machine go: it bills on, and vastd does not watch it any more"),
    "doctor": ("doctor", "check key, credit, SSH, tools and disk before money is spent"),
    "config": ("config", "read or change settings"),
    "daemon": ("daemon", "start, stop or look at vastd itself"),
    "export": ("export", "write the whole record as one document"),
    "import": (
        "import_",
        "compare a file's machines with Vast, and keep the ended ones as history",
    ),
    "completion": ("completion", "print the script that completes vastctl in a shell"),
    "rpc": ("rpc", "call any method of vastd with raw JSON"),
    "version": ("version", "print the versions of vastctl and vastd"),
    "help": ("help", "print this overview, or the help of a command"),
}

ALIASES: Final[dict[str, str]] = {"list": "ls", "status": "show"}
