"""The GPU models of the simulated market: what is true of every card of one name.

Memory is what the card itself reports, in MiB, which Vast passes on as "MB". Prices are the usual
asking prices per GPU. Source: public recordings of Vast offers (2026-04 to 2026-06) and NVIDIA's
data sheets; `dlperf` is a guess proportional to measured training speed where none was recorded.
"""

from typing import Final

from msgspec import Struct


class GpuModel(Struct, frozen=True, kw_only=True):
    """One GPU model."""

    name: str  # as Vast spells it
    nvidia_name: str  # as nvidia-smi spells it
    memory_mib: int
    compute_cap: int  # x100
    min_cuda: float
    tflops: float  # fp32, one GPU
    mem_bw_gb_s: float
    nvlink_gb_s: float  # 0: none
    max_power_w: int
    low_usd_h: float
    high_usd_h: float
    dlperf: float
    counts: tuple[int, ...]  # machine sizes seen
    share: int  # how many machines of a market of 110; sets rarity
    datacenter: bool = False


def _gpu(
    name: str,
    nvidia_name: str,
    memory_mib: int,
    compute_cap: int,
    min_cuda: float,
    tflops: float,
    mem_bw_gb_s: float,
    max_power_w: int,
    price: tuple[float, float],
    dlperf: float,
    counts: tuple[int, ...],
    share: int,
    *,
    nvlink_gb_s: float = 0.0,
    datacenter: bool = False,
) -> GpuModel:
    return GpuModel(
        name=name,
        nvidia_name=nvidia_name,
        memory_mib=memory_mib,
        compute_cap=compute_cap,
        min_cuda=min_cuda,
        tflops=tflops,
        mem_bw_gb_s=mem_bw_gb_s,
        nvlink_gb_s=nvlink_gb_s,
        max_power_w=max_power_w,
        low_usd_h=price[0],
        high_usd_h=price[1],
        dlperf=dlperf,
        counts=counts,
        share=share,
        datacenter=datacenter,
    )


# fmt: off
# One model per line: columns line up so that a wrong figure is seen.
GPU_MODELS: Final[tuple[GpuModel, ...]] = (
    _gpu("RTX 3060", "NVIDIA GeForce RTX 3060", 12288, 860, 11.1, 12.7, 360.0, 170, (0.04, 0.09), 11.0, (1, 2, 4), 6),
    _gpu("RTX 3060 Ti", "NVIDIA GeForce RTX 3060 Ti", 8192, 860, 11.1, 16.2, 448.0, 200, (0.06, 0.10), 12.5, (1, 2), 3),
    _gpu("RTX 3070", "NVIDIA GeForce RTX 3070", 8192, 860, 11.1, 20.3, 448.0, 220, (0.06, 0.11), 13.0, (1, 2, 4), 4),
    _gpu("RTX 3080", "NVIDIA GeForce RTX 3080", 10240, 860, 11.1, 29.8, 760.3, 320, (0.08, 0.15), 22.0, (1, 2, 4), 5),
    _gpu("RTX 3080 Ti", "NVIDIA GeForce RTX 3080 Ti", 12288, 860, 11.1, 34.1, 912.4, 350, (0.11, 0.17), 30.0, (1, 2), 3),
    _gpu("RTX 3090", "NVIDIA GeForce RTX 3090", 24576, 860, 11.1, 35.6, 936.2, 350, (0.12, 0.24), 32.0, (1, 2, 4, 8), 14),
    _gpu("RTX 3090 Ti", "NVIDIA GeForce RTX 3090 Ti", 24564, 860, 11.1, 40.0, 1010.0, 450, (0.17, 0.26), 36.0, (1, 2), 2),
    _gpu("RTX 4060 Ti", "NVIDIA GeForce RTX 4060 Ti", 16380, 890, 11.8, 22.1, 288.0, 165, (0.09, 0.15), 17.0, (1, 2), 3),
    _gpu("RTX 4070", "NVIDIA GeForce RTX 4070", 12282, 890, 11.8, 29.1, 504.2, 200, (0.08, 0.14), 29.0, (1, 2), 3),
    _gpu("RTX 4070S Ti", "NVIDIA GeForce RTX 4070 Ti SUPER", 16376, 890, 11.8, 44.1, 672.3, 285, (0.14, 0.20), 42.0, (1, 2), 2),
    _gpu("RTX 4080", "NVIDIA GeForce RTX 4080", 16376, 890, 11.8, 48.7, 716.8, 320, (0.16, 0.26), 50.0, (1, 2), 3),
    _gpu("RTX 4090", "NVIDIA GeForce RTX 4090", 24564, 890, 11.8, 82.6, 1010.0, 450, (0.26, 0.48), 96.0, (1, 2, 4, 8), 18),
    _gpu("RTX 4090D", "NVIDIA GeForce RTX 4090 D", 24564, 890, 11.8, 73.5, 1010.0, 425, (0.25, 0.45), 86.0, (1, 2, 4), 2),
    _gpu("RTX 5060 Ti", "NVIDIA GeForce RTX 5060 Ti", 16311, 1200, 12.8, 23.7, 448.0, 180, (0.08, 0.16), 24.0, (1, 2), 3),
    _gpu("RTX 5070 Ti", "NVIDIA GeForce RTX 5070 Ti", 16303, 1200, 12.8, 43.9, 896.0, 300, (0.11, 0.19), 55.0, (1, 2), 2),
    _gpu("RTX 5080", "NVIDIA GeForce RTX 5080", 16303, 1200, 12.8, 56.3, 960.0, 360, (0.17, 0.28), 75.0, (1, 2), 2),
    _gpu("RTX 5090", "NVIDIA GeForce RTX 5090", 32607, 1200, 12.8, 104.8, 1790.0, 575, (0.35, 0.62), 160.0, (1, 2, 4, 8), 9),
    _gpu("RTX A4000", "NVIDIA RTX A4000", 16376, 860, 11.1, 19.2, 448.0, 140, (0.08, 0.14), 15.0, (1, 2, 4), 3),
    _gpu("RTX A5000", "NVIDIA RTX A5000", 24564, 860, 11.1, 27.8, 768.0, 230, (0.17, 0.26), 26.0, (1, 2, 4), 3),
    _gpu("RTX A6000", "NVIDIA RTX A6000", 49140, 860, 11.1, 38.7, 768.0, 300, (0.39, 0.56), 34.0, (1, 2, 4, 8), 4),
    _gpu("RTX 6000Ada", "NVIDIA RTX 6000 Ada Generation", 49140, 890, 11.8, 91.1, 960.0, 300, (0.52, 0.86), 92.0, (1, 2, 4), 2),
    _gpu("RTX PRO 6000 WS", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, 1200, 12.8, 126.0, 1790.0, 600, (0.90, 1.33), 185.0, (1, 2, 4), 2),
    _gpu("Tesla V100", "Tesla V100-SXM2-16GB", 16384, 700, 9.0, 15.7, 897.0, 300, (0.11, 0.21), 24.0, (1, 2, 4, 8), 2, nvlink_gb_s=50.0, datacenter=True),
    _gpu("A10", "NVIDIA A10", 23028, 860, 11.1, 31.2, 600.2, 150, (0.20, 0.28), 27.0, (1, 2, 4), 1, datacenter=True),
    _gpu("A40", "NVIDIA A40", 46068, 860, 11.1, 37.4, 695.8, 300, (0.36, 0.52), 34.0, (1, 2, 4, 8), 2, datacenter=True),
    _gpu("L4", "NVIDIA L4", 23034, 890, 11.8, 30.3, 300.1, 72, (0.22, 0.36), 24.0, (1, 2, 4), 1, datacenter=True),
    _gpu("L40S", "NVIDIA L40S", 46068, 890, 11.8, 91.6, 864.0, 350, (0.55, 0.86), 78.0, (1, 2, 4, 8), 3, datacenter=True),
    _gpu("A100 PCIE", "NVIDIA A100 80GB PCIe", 81920, 800, 11.0, 19.5, 1940.0, 300, (0.70, 1.05), 66.0, (1, 2, 4, 8), 2, datacenter=True),
    _gpu("A100 SXM4", "NVIDIA A100-SXM4-80GB", 81920, 800, 11.0, 19.5, 2040.0, 400, (0.78, 1.45), 70.0, (1, 4, 8), 4, nvlink_gb_s=600.0, datacenter=True),
    _gpu("H100 PCIE", "NVIDIA H100 PCIe", 81559, 900, 11.8, 51.2, 2040.0, 350, (1.75, 2.50), 150.0, (1, 2, 4, 8), 1, datacenter=True),
    _gpu("H100 NVL", "NVIDIA H100 NVL", 95830, 900, 11.8, 60.3, 3940.0, 400, (1.80, 2.55), 175.0, (1, 2, 4), 1, nvlink_gb_s=600.0, datacenter=True),
    _gpu("H100 SXM", "NVIDIA H100 80GB HBM3", 81559, 900, 11.8, 66.9, 3360.0, 700, (1.60, 2.60), 210.0, (1, 2, 4, 8), 5, nvlink_gb_s=900.0, datacenter=True),
    _gpu("H200", "NVIDIA H200", 143771, 900, 11.8, 66.9, 4890.0, 700, (2.25, 3.40), 235.0, (1, 4, 8), 3, nvlink_gb_s=900.0, datacenter=True),
)
# fmt: on
