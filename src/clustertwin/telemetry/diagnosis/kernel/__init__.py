"""What the kernel calls and counts, without any process of a job: system calls by number, files of cgroups."""
