/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line that says how far a copy is: on a terminal's standard error only, never with --json, and only once it has taken a
 * second. Whoever shares one between threads holds a lock of its own.
 */
#include "ctl/ctl.h"

#include <inttypes.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/clock.h"

#define FIRST_MS 1000
#define EVERY_MS 200

void ctl_progress_begin(struct ctl_progress *p, const char *label, int64_t total)
{
	*p = (struct ctl_progress){.label = label, .total = total, .began_ns = clock_boot_ns(), .on = isatty(STDERR_FILENO)};
}

void ctl_progress_line(const struct ctl_progress *p, int64_t now_ns, struct buf *line)
{
	int64_t ms = (now_ns - p->began_ns) / CLOCK_NS_PER_MS, rate = ms > 0 ? p->done * 1000 / ms : 0;

	ctl_clean(line, p->label);
	if (p->files)
		buf_printf(line, "  %" PRId64 "/%" PRId64 " files", p->files_done, p->files);
	buf_puts(line, "  ");
	ctl_put_bytes(line, p->done);
	if (p->total > 0) {
		buf_puts(line, " of ");
		ctl_put_bytes(line, p->total);
		buf_printf(line, "  %d%%", (int)(p->done >= p->total ? 100 : p->done * 100 / p->total));
	}
	buf_puts(line, "  ");
	ctl_put_bytes(line, rate);
	buf_puts(line, "/s");
	if (p->total > p->done && rate > 0)
		buf_printf(line, "  %" PRId64 "s left", (p->total - p->done) / rate + 1);
}

/* The label gives way when the terminal is narrow. */
static void draw(struct ctl_progress *p, int64_t now_ns)
{
	struct winsize size;
	struct buf line;
	size_t width = 80, skip;

	if (!ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col)
		width = size.ws_col;
	buf_init(&line, 8192);
	ctl_progress_line(p, now_ns, &line);
	skip = line.len >= width ? line.len - width + 1 : 0;
	while (skip && skip < line.len && ((unsigned char)line.ptr[skip] & 0xc0) == 0x80)
		skip++;
	if (!line.error)
		fprintf(stderr, "\r%s\x1b[K", line.ptr + skip);
	buf_fini(&line);
	p->shown = true;
	p->shown_ns = now_ns;
}

void ctl_progress_add(struct ctl_progress *p, int64_t bytes)
{
	int64_t now_ns;

	p->done += bytes;
	if (!p->on)
		return;
	now_ns = clock_boot_ns();
	if (now_ns - p->began_ns >= FIRST_MS * CLOCK_NS_PER_MS && now_ns - p->shown_ns >= EVERY_MS * CLOCK_NS_PER_MS)
		draw(p, now_ns);
}

void ctl_progress_end(struct ctl_progress *p)
{
	if (p->shown)
		fputs("\r\x1b[K", stderr);
	p->shown = false;
}
