"""Record `twin demo` as docs/img/demo.gif: the terminal above, the page of the service below.

python docs/made/demo_gif.py [OUT.gif]    needs Chromium, playwright and matplotlib (for its font); half a minute
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

WIDTH, TERMINAL, PAGE = 1000, 190, 560
QUIET = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
MOST_BYTES = 1_000_000
LAST_MS = 6000


def font(size: int) -> ImageFont.FreeTypeFont:
    import matplotlib

    return ImageFont.truetype(f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSansMono.ttf", size)


def frame(lines: list[str], page: Path) -> Image.Image:
    """The last lines of the terminal above a screenshot."""
    picture = Image.new("RGB", (WIDTH, TERMINAL + PAGE), "#1d1f21")
    draw = ImageDraw.Draw(picture)
    shown = [f"$ {lines[0]}", *lines[1:]]
    for i, line in enumerate(shown[-9:]):
        draw.text((14, 10 + 19 * i), line[:124], font=font(13), fill="#8abeb7" if line.startswith("$") else "#e8e8e8")
    picture.paste(Image.open(page).convert("RGB").crop((0, 0, WIDTH, PAGE)), (0, TERMINAL))
    return picture


def wrapped(line: str) -> list[str]:
    import textwrap

    return textwrap.wrap(line, 118, subsequent_indent="         ", drop_whitespace=True) or [""]


def record(directory: Path) -> list[tuple[Image.Image, int]]:
    """Frames with their durations in milliseconds."""
    from playwright.sync_api import sync_playwright

    lines = ["twin demo"]
    demo = subprocess.Popen(
        [sys.executable, "-m", "clustertwin", "demo", "--no-browser"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )

    def read() -> None:
        for line in demo.stderr or ():
            lines.extend(wrapped(line.rstrip()))

    threading.Thread(target=read, daemon=True).start()
    frames = []
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=program, args=QUIET)
            page = browser.new_page(viewport={"width": WIDTH, "height": PAGE})
            begun_s, shot = time.monotonic(), directory / "page.png"
            while time.monotonic() - begun_s < 120:
                text = "\n".join(lines)
                event = re.search(r"http://\S+/events/\w+", text)
                address = event or re.search(r"http://127\.0\.0\.1:\d+", text)
                if address is None:
                    time.sleep(0.2)
                    continue
                if page.url.rstrip("/") != address.group().rstrip("/"):
                    page.goto(address.group())
                page.wait_for_timeout(1200)
                page.screenshot(path=shot)
                if event:
                    page.wait_for_timeout(1500)
                    page.screenshot(path=shot)
                    frames.append((frame(lines, shot), LAST_MS))
                    break
                frames.append((frame(lines, shot), 900))
            browser.close()
    finally:
        demo.send_signal(signal.SIGTERM)
        demo.wait(timeout=30)
    return frames


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        frames = record(Path(directory))
    kept = [*frames[:-1][:: max(1, len(frames) // 8)], frames[-1]]
    palette = [picture.quantize(96, method=Image.Quantize.MEDIANCUT) for picture, _ in kept]
    palette[0].save(
        out, save_all=True, append_images=palette[1:], duration=[ms for _, ms in kept], loop=0, optimize=True
    )
    kept[-1][0].save(out.with_suffix(".png"), optimize=True)
    size = out.stat().st_size
    print(f"{out}: {len(kept)} frames, {size / 1e3:.0f} kB")
    if size > MOST_BYTES:
        sys.exit(f"{out} is larger than {MOST_BYTES / 1e6:g} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "img" / "demo.gif")
