"""The simulated world of a run: clock, network, disks, processes, and the files that they leave."""
