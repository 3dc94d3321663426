"""`task.plan`: what a task needs and which three offers fit it best. Spends nothing."""

from msgspec import field

from vastd_protocol.method import Method, Params, View


class Needs(Params, frozen=True, kw_only=True):
    """What the user said about the task; everything may be left out. VRAM is per GPU."""

    task: str | None = None  # free text
    hours: float | None = None
    gpu_ram_gb: float | None = None
    num_gpus: int | None = None
    gpu_name: str | None = None
    disk_gb: float | None = None
    image: str | None = None
    max_dph_usd: float | None = None
    min_reliability: float | None = None
    spot: bool = False
    bid_usd_h: float | None = None
    offer_id: int | None = None
    on_demand: bool = False  # not interruptible, whatever the project says
    profile: str | None = None  # aris or arf; null: the project's, else the configured one


class PlanParams(Params, frozen=True, kw_only=True):
    """`offers=False` needs neither key nor network."""

    needs: Needs = field(default_factory=Needs)
    project: str | None = None  # absolute path
    paths: list[str] = field(default_factory=list)
    offers: bool = True
    budget_usd: float | None = None


class Fact(View, frozen=True, kw_only=True):
    """One number with the place it came from."""

    value: float | int | str
    source: str
    confidence: str = "stated"  # stated, derived or default


class Range(View, frozen=True, kw_only=True):
    """An estimate as a range."""

    low: float
    mid: float
    high: float
    source: str = ""


class TaskView(View, frozen=True, kw_only=True):
    """What is known of the task; null when unknown."""

    model: Fact | None = None
    params_b: Fact | None = None
    method: Fact | None = None
    precision: Fact | None = None
    optimizer: Fact | None = None
    batch: Fact | None = None
    seq_len: Fact | None = None
    gradient_checkpointing: Fact | None = None
    dataset_size: Fact | None = None
    epochs: Fact | None = None
    hours: Fact | None = None
    gpu_hint: Fact | None = None
    num_gpus: Fact | None = None
    sharding: Fact | None = None
    workload: Fact | None = None


class RequirementsView(View, frozen=True, kw_only=True):
    """What to rent. `vram_gb` and `hours` are null when nothing is known of them."""

    vram_gb: Range | None = None
    min_vram_gb: Fact | None = None
    num_gpus: Fact
    disk_gb: Fact
    cuda: Fact | None = None
    hours: Range | None = None
    image: Fact | None = None


class OptionView(View, frozen=True, kw_only=True):
    """One offer worth choosing, with its estimated total; `total_usd` is null without hours."""

    roles: list[str]  # cheapest, best_value, fastest
    offer_id: int
    machine_id: int
    gpu_name: str
    num_gpus: int
    gpu_ram_mb: int
    dph_usd: float
    hours: float | None = None
    total_usd: float | None = None
    reliability: float | None = None
    interruption_chance: float | None = None
    geolocation: str | None = None
    inet_down_mbps: float | None = None
    flags: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


class PlanView(View, frozen=True, kw_only=True):
    """The plan: the task as understood, what it needs, and up to three options."""

    task: TaskView
    requirements: RequirementsView
    question: str | None = None  # the missing fact that would move the choice most
    options: list[OptionView] = field(default_factory=list)
    considered: int = 0
    removed: dict[str, int] = field(default_factory=dict)  # filter -> offers it removed
    warnings: list[str] = field(default_factory=list)
    profile: Fact | None = None  # whose defaults and file formats are followed
    limits: dict[str, Fact] = field(default_factory=dict)  # setting -> what bounds the spending


PLAN = Method("task.plan", PlanParams, PlanView, "Size a task and propose up to three offers")

METHODS = (PLAN,)
