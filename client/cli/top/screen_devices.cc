#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/text/printable.h"
#include "client/cli/top/screen.h"
#include "client/cli/views/names.h"

namespace gpumem::cli::top {
namespace {

struct Part {
  const char* name;
  std::uint64_t bytes;
  const char* glyph;
  Tone tone;
};
using Parts = std::array<Part, 4>;

// What the device's memory is used for.
Parts parts_of(const v1::DeviceSample& device, const Glyphs& glyphs) {
  const v1::DeviceStatus& status = device.status();
  const v1::Reconciliation& seen = device.reconciliation();
  const std::uint64_t lent = lent_of(status);
  return {{{"lent", lent, glyphs.lent, Tone::kLent},
           {"idle", status.created() - std::min(status.created(), lent), glyphs.idle, Tone::kIdle},
           {"contexts", seen.overhead(), glyphs.contexts, Tone::kContexts},
           {"unmanaged", seen.past_broker() + seen.declared() + seen.unexplained(), glyphs.unmanaged,
            Tone::kUnmanaged}}};
}

// A part that is not empty has a cell, as far as there are cells.
Line bar_of(const Parts& parts, std::uint64_t total, std::size_t width, const Glyphs& glyphs) {
  Line bar{{"["}};
  std::size_t room = width;
  for (const Part& part : parts) {
    const double share = total == 0 ? 0 : static_cast<double>(part.bytes) / static_cast<double>(total);
    auto count = static_cast<std::size_t>(std::lround(share * static_cast<double>(width)));
    if (part.bytes != 0) count = std::max<std::size_t>(count, 1);
    count = std::min(count, room);
    room -= count;
    Span span{"", part.tone};
    for (std::size_t i = 0; i < count; ++i) span.text += part.glyph;
    if (count != 0) bar.push_back(std::move(span));
  }
  Span rest{"", Tone::kFaint};
  for (std::size_t i = 0; i < room; ++i) rest.text += glyphs.free;
  bar.push_back(std::move(rest));
  bar.push_back({"]"});
  return bar;
}

std::string load_text(const v1::DeviceSample& device) {
  std::string text;
  if (device.has_utilization()) text += right(std::to_string(device.utilization()), 4) + "%";
  if (device.has_temperature()) text += right(std::to_string(device.temperature()), 4) + "C";
  return text;
}

Line figures_of(const v1::DeviceSample& device, const Parts& parts) {
  Line line{{"     "}};
  for (const Part& part : parts) {
    if (part.bytes == 0 && part.tone != Tone::kLent && part.tone != Tone::kIdle) continue;
    line.push_back({part.name, part.tone});
    line.push_back({" " + short_size(part.bytes) + "  "});
  }
  const v1::DeviceStatus& status = device.status();
  line.push_back({"of " + short_size(status.total())});
  if (status.waiting() != 0)
    line.push_back({"  " + std::to_string(status.waiting()) + " waiting", Tone::kAlarm});
  if (status.asked_back() != 0)
    line.push_back({"  " + short_size(status.asked_back()) + " asked", Tone::kWarning});
  if (status.quarantined() != 0)
    line.push_back({"  " + short_size(status.quarantined()) + " quarantined", Tone::kWarning});
  if (status.missing() != 0)
    line.push_back({"  " + short_size(status.missing()) + " missing", Tone::kWarning});
  line.push_back({"  " + escape_non_ascii(status.name()), Tone::kFaint});
  return line;
}

// The last samples, the latest at the right; each cell has the most of those that it stands for.
Line strip_of(const std::deque<unsigned>& history, std::size_t width, const Glyphs& glyphs) {
  constexpr std::size_t kPerCell = 5;
  Span strip{"", Tone::kLent};
  const std::size_t cells = std::min(width, (history.size() + kPerCell - 1) / kPerCell);
  for (std::size_t cell = cells; cell > 0; --cell) {
    const std::size_t end = history.size() - (cell - 1) * kPerCell;
    const std::size_t begin = end > kPerCell ? end - kPerCell : 0;
    const auto at = [&](std::size_t i) { return history.begin() + static_cast<std::ptrdiff_t>(i); };
    const unsigned most = *std::max_element(at(begin), at(end));
    strip.text +=
        glyphs.levels[std::min<std::size_t>(most * glyphs.levels.size() / 101, glyphs.levels.size() - 1)];
  }
  const std::size_t seconds = cells * kPerCell;
  return {{"     lent, last " + short_time(std::chrono::seconds(seconds)) + " ", Tone::kFaint}, strip};
}

bool has_room(const View& view, std::size_t lines) {
  constexpr std::size_t kShare = 3;  // of the height
  return view.height == View::kUnbounded || lines <= view.height / kShare;
}

}  // namespace

std::vector<Line> draw_devices(const Picture& picture, const View& view) {
  const Glyphs& glyphs = view.is_ascii ? Glyphs::ascii() : Glyphs::unicode();
  const auto count = static_cast<std::size_t>(picture.devices().size());
  constexpr std::size_t kName = 6, kLoad = 12, kStripName = 24;
  std::vector<Line> lines;
  for (std::size_t i = 0; i < count; ++i) {
    const v1::DeviceSample& device = picture.devices()[static_cast<int>(i)];
    const Parts parts = parts_of(device, glyphs);
    Line first{{left(device_name(device.status().uuid(), picture.device_uuids()), kName), Tone::kTitle}};
    const std::size_t width = view.width > kName + kLoad + 2 ? view.width - kName - kLoad - 2 : 0;
    for (Span& span : bar_of(parts, device.status().total(), width, glyphs)) first.push_back(std::move(span));
    first.push_back({load_text(device)});
    lines.push_back(std::move(first));
    if (has_room(view, 2 * count)) lines.push_back(figures_of(device, parts));
    const auto& history = picture.history(device.status().uuid());
    if (history.size() > 1 && has_room(view, 3 * count) && view.width > kStripName)
      lines.push_back(strip_of(history, view.width - kStripName, glyphs));
  }
  return lines;
}

}  // namespace gpumem::cli::top
