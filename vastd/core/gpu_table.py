"""The GPU models Vast lists, one row each: facts of the card, no code beside the row's shape.

Names, memory and compute capability: the name constants of Vast's own client (2026-08), recorded
offers and NVIDIA's data sheets. Speeds are relative to one RTX 3090; where each comes from is its
`SpeedSource`.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct


class SpeedSource(StrEnum):
    """Where a relative speed comes from, in the words shown to the user."""

    ARF = "the ARF workflow's table"
    ARIS = "the ARIS workflow's table"
    # lambdal/deeplearning-benchmark, 2022-07 and 2024-07; Hopper and later scaled by 3.0/4.4 so that
    # they keep their distance to the H100 SXM of the ARF table.
    MEASURED = "measured PyTorch training"
    # Between the ARF rows of the same generation, by dense fp16 tensor TFLOPS.
    SIBLINGS = "cards of the same generation"
    # Before tensor cores: fp32 TFLOPS against the GTX 1080 Ti of the ARF table.
    SCALED = "fp32 throughput against a GTX 1080 Ti"
    # (bandwidth/936)^0.70 x (tensor TFLOPS/71)^0.15 x (fp32/35.6)^0.15: mean error 10 % on 24 cards.
    FORMULA = "memory bandwidth and throughput"


class GpuModel(Struct, frozen=True, kw_only=True):
    """One GPU model. `speeds` has one entry, or one per memory size."""

    name: str  # as Vast spells it
    aliases: tuple[str, ...]  # lower case, letters and digits only
    vram_mb: tuple[int, ...]  # as the card reports it, ascending
    compute_cap: int  # times 100: 890 is 8.9; 0: no CUDA (AMD)
    speeds: tuple[float, ...]
    speed_source: SpeedSource


def _gpu(
    name: str,
    aliases: str,
    vram_mb: tuple[int, ...],
    compute_cap: int,
    speeds: tuple[float, ...],
    speed_source: SpeedSource,
) -> GpuModel:
    return GpuModel(
        name=name,
        aliases=tuple(aliases.split()),
        vram_mb=vram_mb,
        compute_cap=compute_cap,
        speeds=speeds,
        speed_source=speed_source,
    )


# fmt: off
# One model per line: columns line up so that a wrong figure is seen.
GPU_TABLE: Final[tuple[GpuModel, ...]] = (
    _gpu("A10", "a1024gb", (23028,), 860, (0.75,), SpeedSource.MEASURED),
    _gpu("A10g", "", (24576,), 860, (0.72,), SpeedSource.FORMULA),
    _gpu("A16", "", (16384,), 860, (0.2,), SpeedSource.FORMULA),
    _gpu("A30", "", (24576,), 800, (0.94,), SpeedSource.FORMULA),
    _gpu("A40", "a4048gb", (46068, 49140), 860, (1.04,), SpeedSource.MEASURED),
    _gpu("A100 PCIE", "a100 a10040gb a10080gb a100pcie40gb a10080gbpcie a10040", (40960, 81920), 800, (1.8, 2.0), SpeedSource.ARF),
    _gpu("A100 SXM4", "a100 a100sxm a100sxm440gb a100sxm480gb a10080gb", (40960, 81920), 800, (1.8, 2.0), SpeedSource.ARF),
    _gpu("A100 SXM", "a100", (81920,), 800, (2.0,), SpeedSource.ARF),
    _gpu("A100X", "", (81920,), 800, (1.97,), SpeedSource.FORMULA),
    _gpu("A800 PCIE", "a800 a80080gbpcie", (81920,), 800, (1.9,), SpeedSource.FORMULA),
    _gpu("B200", "b200sxm", (183359,), 1000, (4.8,), SpeedSource.MEASURED),
    _gpu("B300 SXM6 AC", "b300", (276480,), 1030, (5.77,), SpeedSource.FORMULA),
    _gpu("GH200 SXM", "gh200 gh200480gb gracehopper", (97871,), 900, (3.09,), SpeedSource.MEASURED),
    _gpu("H100 PCIE", "h100 h10080gb", (81559,), 900, (3.0,), SpeedSource.ARF),
    _gpu("H100 SXM", "h100 h100sxm5 h10080gb h10080gbhbm3", (81559,), 900, (3.0,), SpeedSource.ARF),
    _gpu("H100 NVL", "h100", (95830,), 900, (3.0,), SpeedSource.ARF),
    _gpu("H200", "h200sxm", (143771,), 900, (3.5,), SpeedSource.ARF),
    _gpu("H200 NVL", "", (144384,), 900, (3.5,), SpeedSource.ARF),
    _gpu("L4", "", (23034,), 890, (0.48,), SpeedSource.FORMULA),
    _gpu("L40", "", (46068,), 890, (1.25,), SpeedSource.FORMULA),
    _gpu("L40S", "l40s48gb", (46068,), 890, (1.5,), SpeedSource.ARIS),
    _gpu("Tesla K20c", "k20", (5120,), 350, (0.11,), SpeedSource.SCALED),
    _gpu("Tesla K80", "k80", (12288,), 370, (0.13,), SpeedSource.SCALED),
    _gpu("Tesla M40", "m40", (12288, 24576), 520, (0.21,), SpeedSource.SCALED),
    _gpu("Tesla P4", "p4", (8192,), 610, (0.18,), SpeedSource.SCALED),
    _gpu("Tesla P6", "p6", (16384,), 610, (0.19,), SpeedSource.SCALED),
    _gpu("Tesla P40", "p40", (24576,), 610, (0.37,), SpeedSource.SCALED),
    _gpu("Tesla P100", "p100 teslap100pcie16gb", (12288, 16384), 600, (0.29,), SpeedSource.SCALED),
    _gpu("Tesla T4", "t4", (15360,), 750, (0.37,), SpeedSource.FORMULA),
    _gpu("Tesla V100", "v100 v10016gb v10032gb teslav100sxm216gb teslav100pcie32gb", (16384, 32768), 700, (0.81, 0.93), SpeedSource.MEASURED),
    _gpu("GeForce 970", "gtx970", (4096,), 520, (0.12,), SpeedSource.SCALED),
    _gpu("GTX 750 Ti", "750ti", (2048,), 500, (0.04,), SpeedSource.SCALED),
    _gpu("GTX 1050", "1050", (2048,), 610, (0.06,), SpeedSource.SCALED),
    _gpu("GTX 1050 Ti", "1050ti", (4096,), 610, (0.07,), SpeedSource.SCALED),
    _gpu("GTX 1060", "1060", (3072, 6144), 610, (0.14,), SpeedSource.SCALED),
    _gpu("GTX 1070", "1070", (8192,), 610, (0.2,), SpeedSource.SCALED),
    _gpu("GTX 1070 Ti", "1070ti", (8192,), 610, (0.25,), SpeedSource.SCALED),
    _gpu("GTX 1080", "1080", (8192,), 610, (0.28,), SpeedSource.SCALED),
    _gpu("GTX 1080 Ti", "1080ti", (11264,), 610, (0.35,), SpeedSource.ARF),
    _gpu("GTX TITAN X", "", (12288,), 520, (0.21,), SpeedSource.SCALED),
    _gpu("GTX 1650", "1650", (4096,), 750, (0.12,), SpeedSource.FORMULA),
    _gpu("GTX 1650 S", "1650s gtx1650super", (4096,), 750, (0.18,), SpeedSource.FORMULA),
    _gpu("GTX 1650 Ti", "1650ti", (4096,), 750, (0.16,), SpeedSource.FORMULA),
    _gpu("GTX 1660", "1660", (6144,), 750, (0.18,), SpeedSource.FORMULA),
    _gpu("GTX 1660 S", "1660s gtx1660super", (6144,), 750, (0.27,), SpeedSource.FORMULA),
    _gpu("GTX 1660 Ti", "1660ti", (6144,), 750, (0.25,), SpeedSource.FORMULA),
    _gpu("RTX 2060", "2060", (6144, 12288), 750, (0.32,), SpeedSource.FORMULA),
    _gpu("RTX 2060S", "2060s rtx2060super", (8192,), 750, (0.41,), SpeedSource.FORMULA),
    _gpu("RTX 2070", "2070", (8192,), 750, (0.42,), SpeedSource.FORMULA),
    _gpu("RTX 2070S", "2070s rtx2070super", (8192,), 750, (0.44,), SpeedSource.FORMULA),
    _gpu("RTX 2080", "2080", (8192,), 750, (0.45,), SpeedSource.FORMULA),
    _gpu("RTX 2080S", "2080s rtx2080super", (8192,), 750, (0.5,), SpeedSource.FORMULA),
    _gpu("RTX 2080 Ti", "2080ti", (11264, 22528), 750, (0.55,), SpeedSource.ARF),
    _gpu("RTX 3050", "3050", (6144, 8192), 860, (0.29,), SpeedSource.SIBLINGS),
    _gpu("RTX 3060", "3060", (8192, 12288), 860, (0.4,), SpeedSource.ARF),
    _gpu("RTX 3060 laptop", "3060laptop rtx3060laptopgpu", (6144,), 860, (0.34,), SpeedSource.SIBLINGS),
    _gpu("RTX 3060 Ti", "3060ti", (8192,), 860, (0.49,), SpeedSource.SIBLINGS),
    _gpu("RTX 3070", "3070", (8192,), 860, (0.6,), SpeedSource.ARF),
    _gpu("RTX 3070 laptop", "3070laptop rtx3070laptopgpu", (8192,), 860, (0.48,), SpeedSource.SIBLINGS),
    _gpu("RTX 3070 Ti", "3070ti", (8192,), 860, (0.63,), SpeedSource.SIBLINGS),
    _gpu("RTX 3080", "3080", (10240, 12288), 860, (0.8,), SpeedSource.ARF),
    _gpu("RTX 3080 Ti", "3080ti", (12288,), 860, (0.95,), SpeedSource.SIBLINGS),
    _gpu("RTX 3090", "3090", (24576,), 860, (1.0,), SpeedSource.ARF),
    _gpu("RTX 3090 Ti", "3090ti", (24564,), 860, (1.12,), SpeedSource.SIBLINGS),
    _gpu("RTX 4060", "4060", (8188,), 890, (0.47,), SpeedSource.SIBLINGS),
    _gpu("RTX 4060 laptop", "4060laptop 4060laptopgpu rtx4060laptopgpu", (8188,), 890, (0.36,), SpeedSource.SIBLINGS),
    _gpu("RTX 4060 Ti", "4060ti", (8188, 16380), 890, (0.68,), SpeedSource.SIBLINGS),
    _gpu("RTX 4070", "4070", (12282,), 890, (0.9,), SpeedSource.ARF),
    _gpu("RTX 4070 laptop", "4070laptop 4070laptopgpu rtx4070laptopgpu", (8188,), 890, (0.48,), SpeedSource.SIBLINGS),
    _gpu("RTX 4070S", "4070s 4070super rtx4070super", (12282,), 890, (0.99,), SpeedSource.SIBLINGS),
    _gpu("RTX 4070S Ti", "4070sti 4070tisuper rtx4070tisuper", (16376,), 890, (1.17,), SpeedSource.SIBLINGS),
    _gpu("RTX 4070 Ti", "4070ti", (12282,), 890, (1.05,), SpeedSource.ARF),
    _gpu("RTX 4080", "4080", (16376,), 890, (1.3,), SpeedSource.ARF),
    _gpu("RTX 4080 laptop", "4080laptop 4080laptopgpu rtx4080laptopgpu", (12282,), 890, (0.76,), SpeedSource.SIBLINGS),
    _gpu("RTX 4080S", "4080s 4080super rtx4080super", (16376,), 890, (1.33,), SpeedSource.SIBLINGS),
    _gpu("RTX 4090", "4090", (24564, 49140), 890, (1.6,), SpeedSource.ARF),
    _gpu("RTX 4090D", "4090d", (24564, 49140), 890, (1.52,), SpeedSource.SIBLINGS),
    _gpu("RTX 5060", "5060", (8151,), 1200, (0.81,), SpeedSource.SIBLINGS),
    _gpu("RTX 5060 Ti", "5060ti", (8151, 16311), 1200, (1.0,), SpeedSource.ARF),
    _gpu("RTX 5070", "5070", (12227,), 1200, (1.18,), SpeedSource.SIBLINGS),
    _gpu("RTX 5070 Ti", "5070ti", (16303,), 1200, (1.5,), SpeedSource.ARF),
    _gpu("RTX 5080", "5080", (16303,), 1200, (1.7,), SpeedSource.SIBLINGS),
    _gpu("RTX 5090", "5090", (32607,), 1200, (2.5,), SpeedSource.ARF),
    _gpu("Titan RTX", "", (24576,), 750, (0.77,), SpeedSource.MEASURED),
    _gpu("Titan V", "", (12288,), 700, (0.74,), SpeedSource.FORMULA),
    _gpu("TITAN V CEO", "", (32768,), 700, (0.9,), SpeedSource.FORMULA),
    _gpu("Titan X", "titanxpascal", (12288,), 610, (0.34,), SpeedSource.SCALED),
    _gpu("Titan Xp", "", (12288,), 610, (0.38,), SpeedSource.SCALED),
    _gpu("Quadro K620", "k620", (2048,), 500, (0.03,), SpeedSource.SCALED),
    _gpu("Quadro K2200", "k2200", (4096,), 500, (0.04,), SpeedSource.SCALED),
    _gpu("Quadro P2000", "p2000", (5120,), 610, (0.09,), SpeedSource.SCALED),
    _gpu("Quadro P4000", "p4000", (8192,), 610, (0.16,), SpeedSource.SCALED),
    _gpu("Quadro P5000", "p5000", (16384,), 610, (0.28,), SpeedSource.SCALED),
    _gpu("Quadro P6000", "p6000", (24576,), 610, (0.39,), SpeedSource.SCALED),
    _gpu("Quadro GP100", "gp100", (16384,), 600, (0.32,), SpeedSource.SCALED),
    _gpu("Quadro GV100", "gv100", (32768,), 700, (0.93,), SpeedSource.FORMULA),
    _gpu("Q RTX 4000", "quadrortx4000", (8192,), 750, (0.43,), SpeedSource.FORMULA),
    _gpu("Q RTX 5000", "quadrortx5000", (16384,), 750, (0.45,), SpeedSource.MEASURED),
    _gpu("Q RTX 6000", "quadrortx6000", (24576,), 750, (0.77,), SpeedSource.MEASURED),
    _gpu("Q RTX 8000", "quadrortx8000", (49152,), 750, (0.82,), SpeedSource.MEASURED),
    _gpu("RTX A2000", "a2000", (6138, 12282), 860, (0.31,), SpeedSource.FORMULA),
    _gpu("RTX A4000", "a4000", (16376,), 860, (0.49,), SpeedSource.MEASURED),
    _gpu("RTX A4500", "a4500", (20470,), 860, (0.75,), SpeedSource.MEASURED),
    _gpu("RTX A5000", "a5000", (24564,), 860, (0.9,), SpeedSource.ARIS),
    _gpu("RTX A6000", "a6000", (46068, 49140), 860, (1.1,), SpeedSource.ARIS),
    _gpu("RTX 2000Ada", "2000ada ada2000 rtx2000adageneration", (16380,), 890, (0.32,), SpeedSource.FORMULA),
    _gpu("RTX 4000Ada", "4000ada ada4000 rtx4000adageneration", (20475,), 890, (0.52,), SpeedSource.FORMULA),
    _gpu("RTX 4500Ada", "4500ada ada4500 rtx4500adageneration", (24570,), 890, (0.67,), SpeedSource.FORMULA),
    _gpu("RTX 5000Ada", "5000ada ada5000 rtx5000adageneration", (32760,), 890, (0.95,), SpeedSource.FORMULA),
    _gpu("RTX 5880Ada", "5880ada ada5880 rtx5880adageneration", (49140,), 890, (1.28,), SpeedSource.FORMULA),
    _gpu("RTX 6000Ada", "6000ada ada6000 rtx6000adageneration a6000ada", (46068, 49140), 890, (1.59,), SpeedSource.MEASURED),
    _gpu("RTX PRO 4000", "pro4000 rtxpro4000blackwell", (24467,), 1200, (0.89,), SpeedSource.FORMULA),
    _gpu("RTX PRO 4500", "pro4500 rtxpro4500blackwell", (32623,), 1200, (1.2,), SpeedSource.FORMULA),
    _gpu("RTX PRO 5000", "pro5000 rtxpro5000blackwell", (48935, 73728), 1200, (1.72,), SpeedSource.FORMULA),
    _gpu("RTX PRO 6000", "pro6000 rtxpro6000blackwell", (97887,), 1200, (2.8,), SpeedSource.ARF),
    _gpu("RTX PRO 6000 S", "pro6000s rtxpro6000blackwellserveredition pro6000server 6000blackwell", (97887,), 1200, (2.8,), SpeedSource.ARF),
    _gpu("RTX PRO 6000 WS", "pro6000ws rtxpro6000blackwellworkstationedition pro6000workstation 6000pro", (97887,), 1200, (2.8,), SpeedSource.ARF),
    _gpu("RTX PRO 6000 Max-Q", "pro6000maxq rtxpro6000blackwellmaxqworkstationedition", (97887,), 1200, (2.45,), SpeedSource.FORMULA),
    _gpu("P104-100", "p104", (4096, 8192), 610, (0.21,), SpeedSource.SCALED),
    _gpu("P106-100", "p106", (6144,), 610, (0.14,), SpeedSource.SCALED),
    _gpu("InstinctMI50", "mi50", (16368, 32752), 0, (0.79,), SpeedSource.FORMULA),
    _gpu("InstinctMI100", "mi100", (32752,), 0, (1.31,), SpeedSource.FORMULA),
    _gpu("InstinctMI210", "mi210", (65520,), 0, (1.59,), SpeedSource.FORMULA),
    _gpu("InstinctMI250X", "mi250x", (65520,), 0, (1.62,), SpeedSource.FORMULA),
    _gpu("PRO W6800", "radeonprow6800", (30704,), 0, (0.53,), SpeedSource.FORMULA),
    _gpu("PRO W7800", "radeonprow7800", (32752,), 0, (0.77,), SpeedSource.FORMULA),
    _gpu("PRO W7900", "radeonprow7900", (46064,), 0, (1.11,), SpeedSource.FORMULA),
    _gpu("Pro V620", "radeonprov620", (30704,), 0, (0.55,), SpeedSource.FORMULA),
    _gpu("Radeon VII", "", (16368,), 0, (0.79,), SpeedSource.FORMULA),
    _gpu("Radeon Pro VII", "", (16368,), 0, (0.79,), SpeedSource.FORMULA),
    _gpu("RX 6800", "6800 radeonrx6800", (16368,), 0, (0.52,), SpeedSource.FORMULA),
    _gpu("RX 6800 XT", "6800xt radeonrx6800xt", (16368,), 0, (0.56,), SpeedSource.FORMULA),
    _gpu("RX 6900 XT", "6900xt radeonrx6900xt", (16368,), 0, (0.58,), SpeedSource.FORMULA),
    _gpu("RX 6950 XT", "6950xt radeonrx6950xt", (16368,), 0, (0.63,), SpeedSource.FORMULA),
    _gpu("RX 7600", "7600 radeonrx7600", (8176,), 0, (0.38,), SpeedSource.FORMULA),
    _gpu("RX 7700 XT", "7700xt radeonrx7700xt", (12272,), 0, (0.58,), SpeedSource.FORMULA),
    _gpu("RX 7800 XT", "7800xt radeonrx7800xt", (16368,), 0, (0.76,), SpeedSource.FORMULA),
    _gpu("RX 7900 GRE", "7900gre radeonrx7900gre", (16368,), 0, (0.77,), SpeedSource.FORMULA),
    _gpu("RX 7900 XT", "7900xt radeonrx7900xt", (20464,), 0, (1.0,), SpeedSource.FORMULA),
    _gpu("RX 7900 XTX", "7900xtx radeonrx7900xtx", (24560,), 0, (1.2,), SpeedSource.FORMULA),
)
# fmt: on
