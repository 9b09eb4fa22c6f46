#!/usr/bin/env python3
"""Runs commands in a terminal and draws what they leave on the screen: how docs/images/demo.png is made.

    pip install pillow pyte
    make demo    # leave it running; then, where it says TOWPATH_API and TOWPATH_TOKEN_FILE, and in examples/shop:
    ../../scripts/picture.py ../../docs/images/demo.png 'towpath push front' …
"""
import os, pty, sys
import pyte
from PIL import Image, ImageDraw, ImageFont

COLUMNS, ROWS, SIZE, EDGE = 126, 400, 14, 22
BACK, FORE, DIM = "#0f1614", "#d5dbd8", "#7d8784"
COLOURS = {"green": "#98c379", "red": "#e06c75", "brown": "#e5c07b", "blue": "#61afef", "magenta": "#c678dd",
           "cyan": "#56b6c2", "black": DIM, "white": "#ffffff", "brightblack": DIM}
FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono%s.ttf"


def run(command, stream):
    """Feeds what a command prints to the terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES="60")
        os.execvp("/bin/sh", ["/bin/sh", "-c", f"stty cols {COLUMNS} rows 60; {command}"])
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            break
        if not chunk:
            break
        # pyte knows no faint text: bright black stands for it.
        stream.feed(chunk.replace(b"\x1b[2m", b"\x1b[90m"))
    os.waitpid(pid, 0)


def draw(screen, path):
    lines = [screen.buffer[row] for row in range(screen.cursor.y + 1)]
    while lines and not any(cell.data.strip() for cell in lines[-1].values()):
        lines.pop()
    plain, bold = (ImageFont.truetype(FONT % kind, SIZE) for kind in ("", "-Bold"))
    width, height = plain.getlength("M"), SIZE * 1.32
    longest = max(max((at for at, cell in line.items() if cell.data.strip()), default=0) for line in lines) + 1
    image = Image.new("RGB", (int(longest * width) + 2 * EDGE, int(len(lines) * height) + 2 * EDGE), BACK)
    pen = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        for at, cell in line.items():
            colour = COLOURS.get(cell.fg, FORE) if cell.fg != "default" else ("#ffffff" if cell.bold else FORE)
            pen.text((EDGE + at * width, EDGE + row * height), cell.data, fill=colour, font=bold if cell.bold else plain)
    image.save(path, optimize=True)


def main():
    path, commands = sys.argv[1], sys.argv[2:]
    screen = pyte.Screen(COLUMNS, ROWS)
    screen.set_mode(pyte.modes.LNM)
    stream = pyte.ByteStream(screen)
    for command in commands:
        stream.feed(f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m\r\n".encode())
        run(command, stream)
        if screen.cursor.x:
            stream.feed(b"\r\n")
    draw(screen, path)


if __name__ == "__main__":
    main()
