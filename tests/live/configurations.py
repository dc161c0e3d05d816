"""The configurations that the campaign runs: scenarios, networks and how long each may take."""

import dataclasses
import pathlib

SCENARIOS = pathlib.Path(__file__).resolve().parent / "scenarios"
DEFAULT_CAP_MIB = 25
CAPS_MIB = (1, 2, 5, 10, 25, 50, 100)


@dataclasses.dataclass(frozen=True)
class Configuration:
    """One table of the results.

    share: links are slowed so that communication, without overlap, takes this part of the step;
        None: links stay as they are.
    caps_mib: the bucket sizes to compare with one policy; empty: all policies are compared with
        DDP's default.
    seconds: the time that all of it may take.
    """

    name: str
    scenario: str
    seconds: int
    share: float | None = None
    caps_mib: tuple = ()

    @property
    def path(self):
        return SCENARIOS / f"{self.scenario}.toml"


CONFIGURATIONS = (
    Configuration("token_skew_2ranks", "token_skew_2ranks", 90),
    Configuration("token_skew_4ranks", "token_skew_4ranks", 130),
    Configuration("distilbert_tiny", "distilbert_tiny", 110),
    Configuration("distilbert_tiny_net60", "distilbert_tiny", 150, share=0.6),
    Configuration("distilbert_tiny_4ranks_net60", "distilbert_tiny_4ranks", 160, share=0.6),
    Configuration("distilbert_small_net20", "distilbert_small", 170, share=0.2),
    Configuration("gpt2_small", "gpt2_small", 150),
    Configuration("gpt2_small_net60", "gpt2_small", 160, share=0.6),
    Configuration("bucket_caps_net40", "bucket_caps", 170, share=0.4, caps_mib=CAPS_MIB),
    Configuration("bucket_caps_net60", "bucket_caps", 180, share=0.6, caps_mib=CAPS_MIB),
)
