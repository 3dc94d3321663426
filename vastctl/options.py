"""Options that several commands share: what is needed, what is allowed, which machine."""

from argparse import ArgumentParser, Namespace
from typing import Final

from vastctl import values
from vastd_protocol.methods.rental import PolicyParams
from vastd_protocol.methods.task import Needs

TASK_HELP: Final = "what it does, in words: stored with a job; sizes come from options only"

PROFILES: Final = ("aris", "arf")
ON_OUTBID: Final = ("resume", "rerent", "end")


def add_needs(parser: ArgumentParser, *, offer: bool = True) -> None:
    """Add the options that say what to rent."""
    group = parser.add_argument_group("what to rent")
    group.add_argument(
        "--hours", metavar="H", type=values.hours,
        help="hours it would take on one RTX 3090 (or on the GPU you name)",
    )  # fmt: skip
    group.add_argument(
        "--gpu-ram", metavar="GB", type=values.gpu_ram_gb, help="memory per GPU, at least"
    )
    group.add_argument(
        "--num-gpus", metavar="N", type=values.gpu_count, help="how many GPUs in one machine"
    )
    group.add_argument(
        "--gpu-name", metavar="NAME", type=values.gpu_name, help="this GPU only, such as RTX_4090"
    )
    group.add_argument("--disk", metavar="GB", type=values.disk_gb, help="disk to rent")
    group.add_argument("--image", metavar="IMG", type=values.image, help="Docker image")
    group.add_argument(
        "--max-price", metavar="USD_H", type=values.usd, help="dearest price per hour"
    )
    group.add_argument(
        "--min-reliability",
        metavar="SHARE",
        type=values.reliability,
        help="hosts this reliable only, such as 0.99",
    )
    group.add_argument(
        "--spot", metavar="BID", nargs="?", const=True, type=values.usd,
        help="interruptible: cheaper, may be stopped; bid USD per hour",
    )  # fmt: skip
    group.add_argument(
        "--on-demand", action="store_true", help="not interruptible, whatever the project says"
    )
    group.add_argument(
        "--profile", choices=PROFILES, help="workflow whose image and labels are used"
    )
    if offer:
        group.add_argument(
            "--offer", metavar="ID", type=values.offer_id, help="this offer and no other"
        )


def add_limits(parser: ArgumentParser) -> None:
    """Add the options that bound what is spent."""
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--budget", metavar="USD", type=values.usd, help="end it before it costs more"
    )
    group.add_argument(
        "--max-runtime",
        metavar="DUR",
        type=values.duration,
        help="end it after this (90s, 20m, 2h, 1d)",
    )
    group.add_argument(
        "--idle", metavar="DUR", type=values.duration, help="end it when it did nothing for so long"
    )


def needs(args: Namespace, *, task: str | None = None) -> Needs:
    """Return what the options of `add_needs` say."""
    return Needs(
        task=task,
        hours=args.hours,
        gpu_ram_gb=args.gpu_ram,
        num_gpus=args.num_gpus,
        gpu_name=args.gpu_name,
        disk_gb=args.disk,
        image=args.image,
        max_dph_usd=args.max_price,
        min_reliability=args.min_reliability,
        spot=args.spot is not None,
        bid_usd_h=args.spot if isinstance(args.spot, float) else None,
        offer_id=getattr(args, "offer", None),
        on_demand=args.on_demand,
        profile=args.profile,
    )


def policy(args: Namespace) -> PolicyParams:
    """Return what the options of `add_limits`, and those of `run` beyond them, say."""
    path, interval = getattr(args, "heartbeat", None) or (None, None)
    return PolicyParams(
        budget_usd=args.budget,
        max_runtime_s=args.max_runtime,
        idle_s=args.idle,
        heartbeat_path=path,
        heartbeat_interval_s=interval,
        checkpoint_path=getattr(args, "checkpoint", None),
        keep=getattr(args, "keep", False),
        on_outbid=getattr(args, "on_outbid", None),
    )


def add_no_wait(parser: ArgumentParser) -> None:
    """Add the option of commands that rent a machine to work on."""
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it is ready")


def add_rental(parser: ArgumentParser) -> None:
    """Add the optional RENTAL."""
    parser.add_argument(
        "rental", metavar="RENTAL", nargs="?", type=values.path,
        help="name, id, Vast instance id or unique prefix; nothing if the project has only one",
    )  # fmt: skip


def add_job(parser: ArgumentParser) -> None:
    """Add the optional JOB."""
    parser.add_argument(
        "job", metavar="JOB", nargs="?", type=values.path,
        help="name, id or unique prefix; nothing for the project's newest",
    )  # fmt: skip
