#include "sim/machine/machine.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>

namespace gpumem::sim {

namespace fs = std::filesystem;
namespace {

constexpr std::size_t kIdLength = 16;
constexpr const char* kMachineFile = "machine";
constexpr const char* kCuda = "libcuda.so.1";
constexpr const char* kCudaDev = "libcuda.so";
constexpr const char* kNvml = "libnvidia-ml.so.1";
constexpr std::string_view kFabric = "+fabric";

Error bad_spec(std::string_view spec, std::string_view why) {
  return {Code::kInvalidArgument,
          "spec '" + std::string(spec) + "': " + std::string(why) +
              "; wanted is COUNTxSIZE, for example 2x24GiB or 1x8GiB,1x16GiB, and +fabric"};
}

Error system_error(const std::error_code& error, const fs::path& path) {
  return errno_error(error.value(), path.string());
}

std::string hex(std::uint64_t bits) {
  char text[kIdLength + 1];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(bits));
  return text;
}

std::string new_id() {
  std::random_device random;
  return hex((std::uint64_t{random()} << 32) | random());
}

bool is_id(std::string_view text) {
  return text.size() == kIdLength && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// FNV-1a. Another spec in the same folder has other devices.
std::uint64_t seed_of(const fs::path& folder, std::string_view spec) {
  std::error_code error;
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char byte : fs::weakly_canonical(folder, error).string() + '\n' + std::string(spec))
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  return hash;
}

/// splitmix64: spreads the seed over a UUID.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// Puts a symlink in place of whatever is at `link`, in one step.
Result<void> put_link(const fs::path& target, const fs::path& link) {
  const fs::path temporary = link.string() + ".new";
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, link, error);
  if (error) return system_error(error, link);
  return {};
}

/// Writes the `machine` file last and by rename: a reader sees a whole machine or none.
Result<void> write_machine_file(const fs::path& folder, std::string_view spec) {
  const fs::path temporary = folder / "machine.new";
  {
    std::ofstream file(temporary, std::ios::trunc);
    file << spec << "\nid " << new_id() << "\nseed " << hex(seed_of(folder, spec)) << '\n';
    if (!file.flush()) return errno_error(errno, temporary.string());
  }
  std::error_code error;
  fs::permissions(temporary, fs::perms(0644), error);
  fs::rename(temporary, folder / kMachineFile, error);
  if (error) return system_error(error, folder);
  return {};
}

void remove_data(const Machine& machine) {
  std::error_code ignored;
  fs::remove_all(machine.data_folder(), ignored);
}

/// One item of a spec, `COUNTxSIZE` or `SIZE`, appended to `devices`.
Result<void> parse_item(std::string_view spec, std::string_view item, std::vector<Bytes>& devices) {
  std::size_t count = 1;
  if (const auto cross = item.find('x'); cross != std::string_view::npos) {
    const auto [end, error] = std::from_chars(item.data(), item.data() + cross, count);
    if (error != std::errc() || end != item.data() + cross)
      return bad_spec(spec, "the count is not a number");
    item.remove_prefix(cross + 1);
  }
  const auto size = parse_bytes(item);
  if (!size) return bad_spec(spec, size.error().message);
  if (size->is_zero() || size->count % kGranularity.count != 0) {
    return bad_spec(spec, "a device's memory is a multiple of 2MiB");
  }
  if (count == 0 || count > kMaxDevices - devices.size())
    return bad_spec(spec, "a machine has 1 to 16 devices");
  devices.insert(devices.end(), count, *size);
  return {};
}

}  // namespace

fs::path Machine::data_folder() const { return fs::path("/dev/shm") / ("gpumem-sim-" + id); }

Uuid Machine::device_uuid(std::size_t index) const {
  Uuid uuid{};
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    uuid[i] = static_cast<std::uint8_t>(mix(seed ^ mix(index * 2 + i / 8)) >> (i % 8 * 8));
  }
  uuid[6] = static_cast<std::uint8_t>((uuid[6] & 0x0f) | 0x40);  // RFC 4122 version 4
  uuid[8] = static_cast<std::uint8_t>((uuid[8] & 0x3f) | 0x80);  // RFC 4122 variant
  return uuid;
}

std::string to_string(const Uuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", uuid[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  return text;
}

Result<std::vector<Bytes>> parse_spec(std::string_view spec) {
  std::vector<Bytes> devices;
  std::string_view rest = spec;
  if (rest.ends_with(kFabric)) rest.remove_suffix(kFabric.size());
  for (;;) {
    const auto comma = rest.find(',');
    if (auto parsed = parse_item(spec, rest.substr(0, comma), devices); !parsed) return parsed.error();
    if (comma == std::string_view::npos) return devices;
    rest.remove_prefix(comma + 1);
  }
}

Result<Machine> load_machine(const fs::path& folder) {
  std::ifstream file(folder / kMachineFile);
  if (!file) return Error{Code::kNotFound, "no simulated machine in '" + folder.string() + "'"};
  Machine machine;
  std::string word, seed_word, seed;
  std::getline(file, machine.spec);
  file >> word >> machine.id >> seed_word >> seed;
  auto devices = parse_spec(machine.spec);
  if (!devices || word != "id" || !is_id(machine.id) || seed_word != "seed" || !is_id(seed)) {
    return Error{Code::kInvalidArgument,
                 (folder / kMachineFile).string() + " is damaged; create the machine anew"};
  }
  machine.seed = std::stoull(seed, nullptr, 16);
  machine.devices = std::move(*devices);
  machine.fabric = std::string_view(machine.spec).ends_with(kFabric);
  return machine;
}

Result<void> create_machine(const fs::path& folder, std::string_view spec, const fs::path& library_folder) {
  if (auto devices = parse_spec(spec); !devices) return devices.error();
  std::error_code error;
  const fs::path libraries = fs::absolute(library_folder, error);
  for (const char* name : {kCuda, kNvml}) {
    if (!fs::exists(libraries / name, error)) {
      return Error{Code::kNotFound, "no " + std::string(name) + " in '" + libraries.string() + "'"};
    }
  }
  const auto old = load_machine(folder);
  fs::create_directories(folder, error);
  if (error) return system_error(error, folder);
  for (const auto& [target, link] : {std::pair{kCuda, kCuda}, {kCuda, kCudaDev}, {kNvml, kNvml}}) {
    if (auto put = put_link(libraries / target, folder / link); !put) return put;
  }
  if (old && old->spec == spec) return {};
  if (auto written = write_machine_file(folder, spec); !written) return written;
  if (old) {
    std::fprintf(stderr, "gpumem-sim: %s: the machine %s is replaced by %.*s\n", folder.c_str(),
                 old->spec.c_str(), static_cast<int>(spec.size()), spec.data());
    remove_data(*old);
  }
  return {};
}

Result<void> remove_machine(const fs::path& folder) {
  const auto machine = load_machine(folder);
  if (!machine && machine.error().code == Code::kNotFound) return machine.error();
  if (machine) remove_data(*machine);
  std::error_code ignored;
  for (const char* name : {kMachineFile, kCuda, kCudaDev, kNvml}) fs::remove(folder / name, ignored);
  ::rmdir(folder.c_str());  // stays if it holds anything else
  return {};
}

Result<fs::path> find_libraries() {
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& folder : {own, own.parent_path() / "sim", own / GPUMEM_SIM_FROM_BIN}) {
    if (fs::exists(folder / kCuda, error)) return fs::weakly_canonical(folder, error);
  }
  return Error{Code::kNotFound, "no simulated libcuda.so.1 next to '" + own.string() + "'; give its folder"};
}

Result<Machine> locate_machine() {
  std::filesystem::path folder;
  if (const char* named = std::getenv("GPUMEM_SIM_MACHINE"); named != nullptr && *named != '\0') {
    folder = named;
  } else {
    Dl_info self{};
    static const char anchor = 0;  // lies in this library; its path is the one it was found by, links and all
    if (::dladdr(&anchor, &self) != 0 && self.dli_fname != nullptr) {
      folder = std::filesystem::path(self.dli_fname).parent_path();
    }
  }
  auto machine = load_machine(folder);
  if (machine || machine.error().code != Code::kNotFound) return machine;
  return Error{Code::kNotFound, machine.error().message +
                                    "; make one with `gpumem-sim create FOLDER 1x24GiB`, then " +
                                    "set LD_LIBRARY_PATH or GPUMEM_SIM_MACHINE to FOLDER"};
}

}  // namespace gpumem::sim
