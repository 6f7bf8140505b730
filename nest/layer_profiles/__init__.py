"""Layer profiles that other planners and profilers wrote: what a file says, in seconds and bytes, and nothing more.

What a file leaves open (the batch, the tensor width, backward times) stays None: a profile is shown, never filled up.
"""

from nest.layer_profiles.galvatron_memory import MemoryProfile, RankMemory
from nest.layer_profiles.profile import LayerProfile, ProfiledLayer
from nest.layer_profiles.reading import is_layer_profile, profiles_of, read_layer_profiles, read_memory_profile

__all__ = [
    "LayerProfile",
    "MemoryProfile",
    "ProfiledLayer",
    "RankMemory",
    "is_layer_profile",
    "profiles_of",
    "read_layer_profiles",
    "read_memory_profile",
]
