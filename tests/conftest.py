"""What holds for every test."""

from hypothesis import settings

# An example that is slow on a busy machine is no failure: no test here measures time.
settings.register_profile("mcp_trio", settings(), deadline=None)
settings.load_profile("mcp_trio")
