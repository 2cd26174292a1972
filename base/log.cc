#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "base/text/line_writer.h"

namespace gpumem {
namespace {

// How many bytes of `text` are its first character in UTF-8; 0 if they are none.
std::size_t character_size(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  if (byte(0) < 0xc2 || byte(0) > 0xf4) return 0;
  const std::size_t size = byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : 4;
  if (text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies past U+10FFFF.
  if ((byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) > 0x9f)) return 0;
  if ((byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) > 0x8f)) return 0;
  return size;
}

// Words may come from clients: whatever they are, the line stays one JSON object.
void append_json_string(std::string_view text, spdlog::memory_buf_t& out) {
  constexpr std::string_view kReplacement = "\xef\xbf\xbd";
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    const char c = text.front();
    if (size == 0) {
      out.append(kReplacement);
    } else if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (size == 1 && static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      out.append(std::string_view(escape.data(), 6));
    } else {
      out.append(text.substr(0, size));
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
}

// The message as the inside of a JSON string.
class JsonMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    append_json_string({message.payload.data(), message.payload.size()}, out);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<JsonMessage>(); }
};

// The level as sd-daemon(3) and syslog(3) number it.
class SyslogLevel final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    constexpr std::string_view kNumbers = "7764322";  // of trace, debug, info, warn, err, critical, off
    out.push_back(kNumbers[static_cast<std::size_t>(message.level)]);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<SyslogLevel>(); }
};

// systemd names the device and inode of the journal's stream: what inherits the name may write elsewhere.
bool writes_to_journal() {
  const char* told = std::getenv("JOURNAL_STREAM");
  struct stat stream {};
  return told != nullptr && ::fstat(STDERR_FILENO, &stream) == 0 &&
         told == std::to_string(stream.st_dev) + ":" + std::to_string(stream.st_ino);
}

std::string line_of(const spdlog::details::log_msg& message, spdlog::formatter& formatter) {
  spdlog::memory_buf_t line;
  formatter.format(message, line);
  return {line.data(), line.size()};
}

// Formats a message where it is logged, and leaves the line to the writer's thread.
class QueueSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit QueueSink(const spdlog::formatter& formatter)
      : base_sink(formatter.clone()),
        writer_(STDERR_FILENO, [own = std::shared_ptr(formatter.clone())](std::size_t count) {
          const std::string words = std::to_string(count) + " lines of the log were dropped: nobody read it";
          return line_of({"gpumem", spdlog::level::warn, words}, *own);
        }) {}
  bool flush_within(std::chrono::milliseconds patience) { return writer_.flush(patience); }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::string line = line_of(message, *formatter_);
    if (is_terminal_ && message.color_range_end > message.color_range_start) {
      line.insert(message.color_range_end, "\033[m");
      line.insert(message.color_range_start, color_of(message.level));
    }
    writer_.write(std::move(line));
  }
  void flush_() override {}
  static const char* color_of(spdlog::level::level_enum level) {
    if (level >= spdlog::level::err) return "\033[31m\033[1m";
    return level == spdlog::level::warn ? "\033[33m\033[1m" : "\033[32m";
  }

  const bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  LineWriter writer_;
};

std::unique_ptr<spdlog::formatter> formatter_for(LogFormat format) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  if (format == LogFormat::kText) {
    const char* const pattern = writes_to_journal() ? "<%*>%v" : "%Y-%m-%d %H:%M:%S.%e %^%-7l%$ %v";
    formatter->add_flag<SyslogLevel>('*').set_pattern(pattern);
    return formatter;
  }
  formatter->add_flag<JsonMessage>('*').set_pattern(
      R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","pid":%P,"message":"%*"})");
  return formatter;
}

std::shared_ptr<QueueSink> started_sink;  // of the latest start_log()

}  // namespace

bool flush_log(std::chrono::milliseconds patience) {
  return started_sink == nullptr || started_sink->flush_within(patience);
}

Result<void> start_log(LogFormat format, std::string_view level) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") {
    return Error{Code::kInvalidArgument, "'" + std::string(level) +
                                             "' is no log level; use trace, debug, info, warning, error, "
                                             "critical or off"};
  }
  auto sink = std::make_shared<QueueSink>(*formatter_for(format));
  started_sink = sink;
  auto logger = std::make_shared<spdlog::logger>("gpumem", std::move(sink));
  logger->set_level(parsed);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace gpumem
