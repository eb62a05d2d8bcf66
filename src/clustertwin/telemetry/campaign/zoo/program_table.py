"""The table of real programs: name -> kind, shell command, the command that makes its inputs, and its version.

A command is repeated until the run ends. It runs in an empty folder, and finds `$INPUTS` (made once by `inputs`),
`$DECKS` (input texts of this package), `$PROGRAMS` (programs of this package), `$PYTHON`, `$THREADS` and `$RANKS`.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Literal

from clustertwin.core.errors import SettingsError

Kind = Literal["serial", "threads", "MPI"]


@dataclass(frozen=True, slots=True)
class ZooProgram:
    """A row of the table."""

    about: str
    kind: Kind
    command: str
    version: str  # its first line of output
    inputs: str = ""
    needs: tuple[str, ...] = ()  # executables

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in self.needs if shutil.which(name) is None)


_SEQUENCES = '"$PYTHON" "$PROGRAMS/random_sequences.py"'
_OURS = "$PYTHON --version"

#: The order is that of the queue: kinds of work alternate, so that the first programs already differ much.
PROGRAMS: dict[str, ZooProgram] = {
    "gromacs": ZooProgram(
        "molecular dynamics of 900 water molecules with PME",
        "threads",
        'gmx mdrun -ntmpi 1 -ntomp $THREADS -pin off -s "$INPUTS/topol.tpr" -nsteps 60000',
        "gmx --version | grep -m1 'GROMACS version'",
        'cp "$DECKS/water.top" topol.top; gmx solvate -cs spc216 -box 3 3 3 -p topol.top -o water.gro; '
        'sed "s/^integrator.*/integrator = steep/; s/^nsteps.*/nsteps = 500/" "$DECKS/water.mdp" >relax.mdp; '
        "gmx grompp -f relax.mdp -c water.gro -p topol.top -o relax.tpr -maxwarn 5; "
        "gmx mdrun -ntmpi 1 -ntomp 1 -deffnm relax; "
        'gmx grompp -f "$DECKS/water.mdp" -c relax.gro -p topol.top -o topol.tpr -maxwarn 5',
        ("gmx",),
    ),
    "postgresql": ZooProgram(
        "a database server with four clients that update accounts",
        "serial",
        'bash "$DECKS/postgresql.sh"',
        "psql --version",
        'bash "$DECKS/postgresql-inputs.sh"',
        ("psql", "setpriv"),
    ),
    "notebook": ZooProgram(
        "short cells and long pauses: idle by design",
        "serial",
        '"$PYTHON" "$PROGRAMS/notebook.py"',
        _OURS,
    ),
    "gcc": ZooProgram(
        "a compiler: make of 60 C files, short processes",
        "serial",
        'cp "$INPUTS"/* .; make -s clean 2>/dev/null; rm -f *.o; make -s -j $THREADS',
        "gcc -dumpfullversion",
        '"$PYTHON" "$PROGRAMS/c_sources.py" 60',
        ("gcc", "make"),
    ),
    "blastn": ZooProgram(
        "search of 20,000 noisy reads in a genome of 10 million bases",
        "threads",
        'blastn -db "$INPUTS/genome" -query "$INPUTS/reads.fa" -num_threads $THREADS -word_size 11 -out hits.txt',
        "blastn -version",
        f"{_SEQUENCES} genome --length 10000000 >genome.fa; makeblastdb -in genome.fa -dbtype nucl -out genome; "
        f"{_SEQUENCES} reads --length 10000000 --count 20000 --error 0.08 | sed -n '1~4s/^@/>/p;2~4p' >reads.fa",
        ("blastn", "makeblastdb"),
    ),
    "cp2k": ZooProgram(
        "density-functional molecular dynamics of eight water molecules",
        "MPI",
        'cp "$INPUTS/water.xyz" .; OMP_NUM_THREADS=1 mpirun -n $RANKS cp2k -i "$DECKS/water.cp2k"',
        "cp2k --version",
        '"$PYTHON" "$PROGRAMS/water_lattice.py" 2 3.0 >water.xyz',
        ("cp2k", "mpirun"),
    ),
    "sort-pipeline": ZooProgram(
        "a pipeline of processes: decompress, filter, sort, compress",
        "serial",
        "zstd -dc \"$INPUTS/table.zst\" | awk '{print $2, $1, $3}' | sort -S 64M -T . | gzip -6 >sorted.gz",
        "sort --version",
        '"$PYTHON" "$PROGRAMS/random_table.py" rows 3000000 | zstd -q -o table.zst',
        ("zstd", "awk", "sort", "gzip"),
    ),
    "torch": ZooProgram(
        "training of a convolutional network, batches read from a file",
        "threads",
        '"$PYTHON" "$PROGRAMS/train_network.py" "$INPUTS/images.npy" $THREADS',
        "$PYTHON -c 'import torch; print(torch.__version__)'",
        '"$PYTHON" -c "import numpy; r = numpy.random.default_rng(1); '
        "numpy.save('images.npy', r.normal(size=(4096, 3, 32, 32)).astype('f4'))\"",
    ),
    "checkpointing": ZooProgram(
        "a stencil code that writes 128 MB, flushed, every 20 s",
        "serial",
        '"$PYTHON" "$PROGRAMS/checkpointing.py"',
        _OURS,
    ),
    "bwa": ZooProgram(
        "alignment of short reads to a genome of 5 million bases",
        "threads",
        'bwa mem -t $THREADS "$INPUTS/genome.fa" "$INPUTS/reads.fq" >aligned.sam',
        "bwa 2>&1 | grep -m1 Version",
        f"{_SEQUENCES} genome --length 5000000 >genome.fa; bwa index genome.fa; "
        f"{_SEQUENCES} reads --length 5000000 --count 200000 >reads.fq",
        ("bwa",),
    ),
    "fio": ZooProgram(
        "buffered writes and reads of a file, with a flush now and then",
        "serial",
        "fio --name=steady --size=256m --rw=randrw --bs=16k --ioengine=psync --fsync=256 --rate=8m --time_based "
        "--runtime=120 --thinktime=2000",
        "fio --version",
        needs=("fio",),
    ),
    "espresso": ZooProgram(
        "self-consistent field of silicon, plane waves",
        "MPI",
        'cp "$DECKS/silicon.gth" Si.gth; mpirun -n $RANKS pw.x -in "$DECKS/silicon.pw"',
        "pw.x </dev/null 2>/dev/null | grep -m1 -o 'PWSCF v[^ ]*'",
        needs=("pw.x", "mpirun"),
    ),
    "ffmpeg": ZooProgram(
        "encoding of a synthetic video, 1280 by 720",
        "threads",
        "ffmpeg -v error -y -f lavfi -i mandelbrot=size=1280x720:rate=25 -t 8 -threads $THREADS -c:v libx264 video.mkv",
        "ffmpeg -version",
        needs=("ffmpeg",),
    ),
    "R": ZooProgram(
        "linear models on resampled data, and clustering",
        "serial",
        'Rscript "$DECKS/bootstrap.R"',
        "Rscript --version",
        needs=("Rscript",),
    ),
    "redis": ZooProgram(
        "a key-value server and its benchmark over a local socket",
        "serial",
        'bash "$DECKS/redis.sh"',
        "redis-server --version",
        needs=("redis-server", "redis-benchmark"),
    ),
    "lammps": ZooProgram(
        "molecular dynamics of a Lennard-Jones melt, 4,000 atoms",
        "MPI",
        'mpirun -n $RANKS lmp -in "$DECKS/melt.lammps" -log none; code=$?; rm -f melt.restart.*; (exit $code)',
        "lmp -h | grep -m1 -i 'Large-scale'",
        needs=("lmp", "mpirun"),
    ),
    "samtools": ZooProgram(
        "sorting and indexing of alignments, with temporary files",
        "threads",
        'samtools sort -m 32M -@ $((THREADS - 1)) -T tmp "$INPUTS/aligned.bam" -o sorted.bam '
        "&& samtools index sorted.bam && samtools flagstat sorted.bam",
        "samtools --version",
        f"{_SEQUENCES} genome --length 2000000 >genome.fa; minimap2 -d genome.mmi genome.fa; "
        f"{_SEQUENCES} reads --length 2000000 --count 300000 >reads.fq; "
        "minimap2 -ax sr genome.mmi reads.fq | samtools view -b -o aligned.bam; rm reads.fq",
        ("samtools", "minimap2"),
    ),
    "master-worker": ZooProgram(
        "a master that hands tasks of random length to three workers",
        "serial",
        '"$PYTHON" "$PROGRAMS/master_worker.py"',
        _OURS,
    ),
    "mrbayes": ZooProgram(
        "Bayesian trees of 30 sequences by Markov chains",
        "serial",
        'cp "$INPUTS/data.nex" .; mb "$DECKS/tree.nex"',
        "mb -v | grep -m1 Version",
        f"{_SEQUENCES} nexus --count 30 --length 1500 --error 0.05 >data.nex",
        ("mb",),
    ),
    "scikit-learn": ZooProgram(
        "a search over random forests",
        "serial",
        '"$PYTHON" "$PROGRAMS/forest_search.py"',
        "$PYTHON -c 'import sklearn; print(sklearn.__version__)'",
    ),
    "nwchem": ZooProgram(
        "geometry of a water dimer with B3LYP",
        "MPI",
        'mpirun -n $RANKS nwchem "$DECKS/water.nw"',
        "dpkg-query -W nwchem",
        needs=("nwchem", "mpirun"),
    ),
    "minimap2": ZooProgram(
        "alignment of long reads to a genome of 5 million bases",
        "threads",
        'minimap2 -t $THREADS -ax map-ont "$INPUTS/genome.fa" "$INPUTS/reads.fq" >aligned.sam',
        "minimap2 --version",
        f"{_SEQUENCES} genome --length 5000000 >genome.fa; "
        f"{_SEQUENCES} long-reads --length 5000000 --count 3000 --read-length 5000 --error 0.08 >reads.fq",
        ("minimap2",),
    ),
    "octave": ZooProgram(
        "dense algebra and interpreted loops",
        "threads",
        'octave-cli --no-history "$DECKS/ode.m"',
        "octave-cli --version",
        needs=("octave-cli",),
    ),
    "hmmer": ZooProgram(
        "search of a protein family in 20,000 sequences",
        "threads",
        'hmmsearch --cpu $((THREADS - 1)) "$INPUTS/family.hmm" "$INPUTS/proteins.fa" >hits.txt',
        "hmmsearch -h | grep -m1 HMMER",
        f"{_SEQUENCES} alignment --count 40 --length 300 --error 0.2 >family.fa; "
        "hmmbuild --informat afa --amino family.hmm family.fa; "
        f"{_SEQUENCES} proteins --count 20000 --length 350 --error 0.4 >proteins.fa",
        ("hmmsearch", "hmmbuild"),
    ),
    "povray": ZooProgram(
        "ray tracing of glass and metal spheres",
        "threads",
        'povray +I"$DECKS/spheres.pov" +O./image.png +W480 +H360 +A0.2 -D +WT$THREADS',
        "povray --version 2>&1 | grep -m1 POV-Ray",
        needs=("povray",),
    ),
    "hpcc": ZooProgram(
        "the HPC Challenge: Linpack, transforms, random access, streams",
        "MPI",
        'cp "$DECKS/hpccinf.txt" .; rm -f hpccoutf.txt; mpirun -n $RANKS hpcc',
        "dpkg-query -W hpcc",
        needs=("hpcc", "mpirun"),
    ),
    "abinit": ZooProgram(
        "self-consistent field of silicon with pseudopotentials",
        "MPI",
        'sed "s|\\$DECKS|$DECKS|" "$DECKS/silicon.abi" >silicon.abi; rm -f silicon.abo*; '
        "mpirun -n $RANKS abinit silicon.abi",
        "abinit --version",
        needs=("abinit", "mpirun"),
    ),
    "zstd": ZooProgram(
        "compression of a file of 200 MB, and its check",
        "threads",
        'zstd -q -f -12 -T$THREADS "$INPUTS/data" -o data.zst && zstd -q -t data.zst',
        "zstd --version",
        '"$PYTHON" "$PROGRAMS/random_table.py" words 28000000 >data',
        ("zstd",),
    ),
    "raxml": ZooProgram(
        "maximum-likelihood trees of 40 sequences",
        "serial",
        'rm -f RAxML_*; raxmlHPC -s "$INPUTS/data.phy" -n run -m GTRGAMMA -p 1',
        "raxmlHPC -v | grep -m1 version",
        f"{_SEQUENCES} phylip --count 40 --length 1500 --error 0.05 >data.phy",
        ("raxmlHPC",),
    ),
    "gpaw": ZooProgram(
        "plane waves: aluminium with a vacancy",
        "MPI",
        'mpirun -n $RANKS /usr/bin/gpaw python "$DECKS/aluminium.gpaw"',
        "/usr/bin/gpaw --version",
        needs=("gpaw", "mpirun"),
    ),
    "bowtie2": ZooProgram(
        "alignment of short reads, compressed to BAM through a pipe",
        "threads",
        'bowtie2 -p $THREADS -x "$INPUTS/genome" -U "$INPUTS/reads.fq" | samtools view -b -o aligned.bam',
        "bowtie2 --version",
        f"{_SEQUENCES} genome --length 3000000 >genome.fa; bowtie2-build -q genome.fa genome; "
        f"{_SEQUENCES} reads --length 3000000 --count 150000 >reads.fq",
        ("bowtie2", "bowtie2-build", "samtools"),
    ),
    "numpy": ZooProgram(
        "solutions, transforms and eigenvalues of random matrices",
        "threads",
        '"$PYTHON" "$PROGRAMS/matrix_products.py"',
        "$PYTHON -c 'import numpy; print(numpy.__version__)'",
    ),
    "pbzip2": ZooProgram(
        "compression in blocks",
        "threads",
        'pbzip2 -k -c -p$THREADS "$INPUTS/data" >data.bz2',
        "pbzip2 -V",
        '"$PYTHON" "$PROGRAMS/random_table.py" words 12000000 >data',
        ("pbzip2",),
    ),
    "blastp": ZooProgram(
        "search of proteins in 5,000 sequences",
        "threads",
        'blastp -db "$INPUTS/proteins" -query "$INPUTS/query.fa" -num_threads $THREADS -outfmt 6 -out hits.tsv',
        "blastp -version",
        f"{_SEQUENCES} proteins --count 5000 --length 350 --error 0.6 >proteins.fa; "
        "makeblastdb -in proteins.fa -dbtype prot -out proteins; head -c 60000 proteins.fa >query.fa",
        ("blastp", "makeblastdb"),
    ),
    "sysbench": ZooProgram(
        "prime numbers and mutexes in threads",
        "threads",
        "sysbench cpu --threads=$THREADS --time=20 run && sysbench threads --threads=4 --time=10 run "
        "&& sysbench memory --threads=$THREADS --time=10 --memory-total-size=0 run",
        "sysbench --version",
        needs=("sysbench",),
    ),
    "sqlite": ZooProgram(
        "transactions and joins of an embedded database",
        "serial",
        'rm -f data.db*; sqlite3 data.db <"$DECKS/orders.sql"',
        "sqlite3 --version",
        needs=("sqlite3",),
    ),
    "openfoam": ZooProgram(
        "flow in a lid-driven cavity, 160 by 160 cells",
        "MPI",
        'export WM_PROJECT_DIR=/usr/share/openfoam; rm -rf processor*; bash "$DECKS/cavity.sh" $RANKS; blockMesh; '
        "if [ $RANKS = 1 ]; then icoFoam; else decomposePar -force && mpirun -n $RANKS icoFoam -parallel; fi",
        "dpkg-query -W openfoam",
        needs=("icoFoam", "mpirun"),
    ),
    "iqtree": ZooProgram(
        "maximum-likelihood tree of 40 sequences with bootstrap",
        "threads",
        'iqtree2 -s "$INPUTS/data.phy" -m GTR+G -B 1000 -T $THREADS --seed 1 --prefix run -redo',
        "iqtree2 --version",
        f"{_SEQUENCES} phylip --count 40 --length 1500 --error 0.05 >data.phy",
        ("iqtree2",),
    ),
    "elk": ZooProgram(
        "ground state of silicon with augmented plane waves",
        "MPI",
        'cp "$DECKS/silicon.elk" elk.in; mpirun -n $RANKS elk-lapw',
        "dpkg-query -W elk-lapw",
        needs=("elk-lapw", "mpirun"),
    ),
    "meep": ZooProgram(
        "light in a ring resonator, finite differences in time",
        "MPI",
        'mpirun -n $RANKS meep "$DECKS/ring.ctl"',
        "meep --version | grep -m1 Meep",
        needs=("meep", "mpirun"),
    ),
    "mafft": ZooProgram(
        "alignment of 60 proteins with iterative refinement",
        "threads",
        'mafft --quiet --thread $THREADS --globalpair --maxiterate 20 "$INPUTS/proteins.fa" >aligned.fa',
        "mafft --version 2>&1",
        f"{_SEQUENCES} proteins --count 60 --length 400 --error 0.5 >proteins.fa",
        ("mafft",),
    ),
    "spades": ZooProgram(
        "assembly of a genome in stages of their own: correction, graphs, contigs",
        "threads",
        'rm -rf out; spades.py --phred-offset 33 -s "$INPUTS/reads.fq" -t $THREADS -m 8 -o out',
        "spades.py --version",
        f"{_SEQUENCES} reads --length 300000 --count 60000 --error 0.005 >reads.fq",
        ("spades.py",),
    ),
    "diamond": ZooProgram(
        "sensitive search of proteins in a database of 20,000",
        "threads",
        'diamond blastp --quiet --sensitive -p $THREADS -d "$INPUTS/proteins" -q "$INPUTS/query.fa" -o hits.tsv',
        "diamond version",
        f"{_SEQUENCES} proteins --count 20000 --length 350 --error 0.6 >proteins.fa; "
        "diamond makedb --quiet --in proteins.fa -d proteins; head -c 4000000 proteins.fa >query.fa",
        ("diamond",),
    ),
    "salmon": ZooProgram(
        "counts of transcripts from reads, with resampling",
        "threads",
        'rm -rf out; salmon quant -q -i "$INPUTS/index" -l A -r "$INPUTS/reads.fq" -p $((THREADS + 1)) '
        "--numBootstraps 100 -o out",
        "salmon --version",
        f"{_SEQUENCES} genome --length 3000000 | sed 1d | tr -d '\\n' | fold -w 1500 "
        "| awk '{print \">t\" NR; print}' >parts.fa; salmon index -t parts.fa -i index -p 1; "
        f"{_SEQUENCES} reads --length 3000000 --count 400000 >reads.fq",
        ("salmon",),
    ),
    "calculix": ZooProgram(
        "finite elements: a beam that bends, and its modes",
        "threads",
        'cp "$INPUTS/beam.inp" .; OMP_NUM_THREADS=$THREADS ccx beam',
        "ccx -v | grep -m1 Version",
        '"$PYTHON" "$PROGRAMS/brick_mesh.py" 60 14 14 >beam.inp',
        ("ccx",),
    ),
    "gmsh": ZooProgram(
        "a mesh of tetrahedra in a block with holes",
        "serial",
        'gmsh -3 -v 1 -nt $THREADS "$DECKS/bracket.geo" -o mesh.msh',
        "gmsh --version 2>&1",
        needs=("gmsh",),
    ),
    "cdo": ZooProgram(
        "statistics of a year of climate fields on another grid, compressed",
        "threads",
        'cdo -s -O -P $THREADS -f nc4 -z zip_3 remapbil,r360x180 "$INPUTS/fields.nc" coarse.nc && '
        'cdo -s -O -P $THREADS -f nc4 -z zip_3 runmean,5 "$INPUTS/fields.nc" smooth.nc && '
        "cdo -s -O timstd smooth.nc deviation.nc",
        "cdo --version 2>&1",
        'for day in $(seq 1 120); do cdo -s -f nc -setdate,$(date -d "2001-01-01 +$day days" +%F) '
        "-random,r720x360,$day day-$day.nc; done; cdo -s -O mergetime day-*.nc fields.nc; rm day-*.nc",
        ("cdo",),
    ),
    "freefem": ZooProgram(
        "finite elements: heat in a plate, on a mesh that adapts",
        "serial",
        'FreeFem++ -nw -ns -v 0 "$DECKS/heat.edp"',
        "dpkg-query -W freefem++",
        needs=("FreeFem++",),
    ),
    "ngspice": ZooProgram(
        "transient analysis of a ring oscillator",
        "serial",
        'ngspice -b "$DECKS/ring.cir" -r ring.raw >ring.log',
        "ngspice --version | grep -m1 -o 'ngspice-[0-9]*'",
        needs=("ngspice",),
    ),
    "yosys": ZooProgram(
        "logic synthesis of four multipliers",
        "serial",
        'yosys -q -p "read_verilog $DECKS/multiplier.v; synth -flatten; abc -g AND,XOR,MUX; check" >/dev/null',
        "yosys -V",
        needs=("yosys",),
    ),
}


def find_program(name: str) -> ZooProgram:
    if name not in PROGRAMS:
        raise SettingsError(f"unknown program {name!r}; available programs: {', '.join(PROGRAMS)}")
    return PROGRAMS[name]
