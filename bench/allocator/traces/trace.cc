#include "bench/allocator/traces/trace.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <unordered_map>

namespace gpumem::bench {
namespace {

using Kind = AllocatorCall::Kind;

// Lines to calls; the file's own numbers of blocks to ours.
class Reader {
 public:
  explicit Reader(std::string name) { trace_.name = std::move(name); }

  /// The error in the line, or nothing.
  std::string take(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb.empty() || verb.front() == '#') return {};
    std::uint64_t id = 0;
    AllocatorCall call;
    if (verb == "a" && words >> id >> call.bytes >> call.stream) return allocate(id, call);
    if (verb == "f" && words >> id >> call.stream) return free(id, call);
    return "is neither 'a ID BYTES STREAM' nor 'f ID STREAM'";
  }
  AllocationTrace finish() { return std::move(trace_); }

 private:
  struct Live {
    std::uint32_t block;
    std::uint64_t bytes;
  };

  std::string allocate(std::uint64_t id, AllocatorCall call) {
    if (call.bytes == 0) return "allocates nothing";
    call.block = trace_.blocks;
    if (!live_.try_emplace(id, Live{call.block, call.bytes}).second)
      return "allocates a block that is in use";
    ++trace_.blocks;
    trace_.calls.push_back(call);
    return {};
  }
  std::string free(std::uint64_t id, AllocatorCall call) {
    const auto found = live_.find(id);
    if (found == live_.end()) return "frees a block that is not in use";
    call.kind = Kind::kFree;
    call.block = found->second.block;
    call.bytes = found->second.bytes;
    live_.erase(found);
    trace_.calls.push_back(call);
    return {};
  }

  AllocationTrace trace_;
  std::unordered_map<std::uint64_t, Live> live_;
};

}  // namespace

TraceFigures figures_of(const AllocationTrace& trace) {
  TraceFigures figures;
  std::set<std::uint32_t> streams;
  for (const AllocatorCall& call : trace.calls) {
    streams.insert(call.stream);
    if (call.kind == Kind::kFree) {
      figures.left -= Bytes{call.bytes};
      continue;
    }
    figures.left += Bytes{call.bytes};
    figures.peak = std::max(figures.peak, figures.left);
    figures.largest = std::max(figures.largest, Bytes{call.bytes});
  }
  figures.streams = static_cast<std::uint32_t>(streams.size());
  return figures;
}

AllocationTrace interleaved(std::string name, const std::vector<AllocationTrace>& parts) {
  struct Place {
    std::size_t next = 0;
    std::uint32_t first_stream = 0;
    std::vector<std::uint32_t> blocks;  ///< of the part, as they are numbered in the whole
  };
  AllocationTrace whole{std::move(name), {}, 0};
  std::vector<Place> places(parts.size());
  std::size_t calls = 0;
  for (std::size_t i = 0, streams = 0; i < parts.size(); ++i) {
    places[i].first_stream = static_cast<std::uint32_t>(streams);
    places[i].blocks.resize(parts[i].blocks);
    streams += figures_of(parts[i]).streams;
    calls += parts[i].calls.size();
  }
  const auto through = [&](std::size_t i) {
    return parts[i].calls.empty()
               ? 2.0
               : static_cast<double>(places[i].next) / static_cast<double>(parts[i].calls.size());
  };
  for (; calls > 0; --calls) {
    std::size_t least = 0;
    for (std::size_t i = 1; i < parts.size(); ++i) least = through(i) < through(least) ? i : least;
    Place& place = places[least];
    AllocatorCall call = parts[least].calls[place.next++];
    if (call.kind == Kind::kAllocate) place.blocks[call.block] = whole.blocks++;
    call.block = place.blocks[call.block];
    call.stream += place.first_stream;
    whole.calls.push_back(call);
  }
  return whole;
}

Result<AllocationTrace> read_trace(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) return Error{Code::kNotFound, file.string() + ": cannot be read"};
  Reader reader(file.stem().string());
  std::size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const std::string wrong = reader.take(line);
    if (wrong.empty()) continue;
    return Error{Code::kInvalidArgument, file.string() + ":" + std::to_string(number) + ": " + wrong};
  }
  return reader.finish();
}

Result<void> write_trace(const AllocationTrace& trace, const std::filesystem::path& file) {
  std::ofstream stream(file);
  stream << "# " << trace.name << ": peak " << to_string(figures_of(trace).peak) << "\n";
  for (const AllocatorCall& call : trace.calls) {
    if (call.kind == Kind::kAllocate)
      stream << "a " << call.block << ' ' << call.bytes << ' ' << call.stream << '\n';
    else
      stream << "f " << call.block << ' ' << call.stream << '\n';
  }
  if (!stream.flush()) return Error{Code::kInternal, file.string() + ": cannot be written"};
  return {};
}

}  // namespace gpumem::bench
