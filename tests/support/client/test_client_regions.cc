// The commands of regions.
#include <csignal>

#include "tests/support/client/test_client.h"

namespace gpumem::test {
namespace {

// A text, or an array of its bytes: those that no JSON can hold.
std::string text_of(const Json& given) {
  if (given.is_string()) return given;
  std::string text;
  for (const Json& byte : given) text += static_cast<char>(byte.get<int>());
  return text;
}

Bytes bytes_in(const Json& command, const char* key) { return {command.value(key, std::uint64_t{0})}; }

Answer publish(const Json& command, Holdings& holdings) {
  PublishOptions options;
  options.sharing = static_cast<Sharing>(command.value("sharing", 0));
  options.readers = command.value("readers", std::vector<std::string>{});
  options.layout = bytes_in(command, "layout");
  options.digest.fill(static_cast<unsigned char>(command.value("digest", 0)));
  options.life = std::chrono::milliseconds(command.value("life_ms", 0));
  options.keep = command.value("keep", false);
  options.linger = std::chrono::milliseconds(command.value("linger_ms", 0));
  options.sealed = command.value("sealed", false);
  auto version = holdings.slices.at(command.at("slice"))
                     .publish(text_of(command.at("region")), bytes_in(command, "offset"),
                              bytes_in(command, "bytes"), options);
  if (!version) return failure(version.error());
  Answer answer;
  answer.json["version"] = *version;
  return answer;
}

// Publishes under `count` names: the region's, each with a number.
Answer publish_many(const Json& command, Holdings& holdings) {
  const std::string name = command.at("region");
  for (int i = 0; i < command.at("count").get<int>(); ++i) {
    auto version = holdings.slices.at(command.at("slice")).publish(name + std::to_string(i));
    if (!version) return failure(version.error());
  }
  return {};
}

Answer mapped(const Json& command, Region region, Holdings& holdings) {
  Answer answer;
  answer.json["bytes"] = region.size().count;
  answer.json["version"] = region.version();
  answer.json["layout"] = region.layout().count;
  answer.json["digest"] = region.digest();
  holdings.imports.insert_or_assign(command.value("import", "i"), std::move(region));
  return answer;
}

Answer map_region(const Json& command, Holdings& holdings) {
  auto region = holdings.session->map_region(text_of(command.at("region")),
                                             {.owner = command.value("owner", ""),
                                              .version = command.value("version", std::uint64_t{0}),
                                              .writable = command.value("writable", false),
                                              .adopt = command.value("adopt", false),
                                              .device = command.value("device", ""),
                                              .access = command.value("access", std::vector<std::string>{}),
                                              .newer_than = command.value("newer_than", std::uint64_t{0}),
                                              .wait = std::chrono::milliseconds(command.value("wait_ms", 0)),
                                              .stop = {}});
  return region ? mapped(command, std::move(*region), holdings) : failure(region.error());
}

// Answers the reservation, or maps the region as map_region does.
Answer map_or_reserve(const Json& command, Holdings& holdings) {
  auto outcome = holdings.session->map_or_reserve(
      text_of(command.at("region")), {.writable = command.value("writable", false),
                                      .wait = std::chrono::milliseconds(command.value("wait_ms", 0)),
                                      .life = std::chrono::milliseconds(command.value("life_ms", 0)),
                                      .stop = {}});
  if (!outcome) return failure(outcome.error());
  Answer answer;
  if (const auto* reservation = std::get_if<Reservation>(&*outcome)) {
    answer.json["reservation"] = reservation->number;
    return answer;
  }
  auto& region = std::get<Region>(*outcome);
  answer.json["version"] = region.version();
  holdings.imports.insert_or_assign(command.value("import", "i"), std::move(region));
  return answer;
}

// As a kernel would, not through the driver: on the simulated one device memory is the process's.
Answer store(const Json& command, Holdings& holdings) {
  std::signal(SIGSEGV, SIG_DFL);  // and not a sanitizer's report
  const auto address =
      command.contains("slice")
          ? holdings.slices.at(command.at("slice")).base() + bytes_in(command, "offset").count
          : holdings.imports.at(command.value("import", "i")).address();
  *reinterpret_cast<volatile char*>(address) = 1;
  return {};
}

}  // namespace

std::optional<Answer> region_command(const Json& command, Holdings& holdings) {
  const std::string what = command.at("do");
  if (what == "publish") return publish(command, holdings);
  if (what == "publish_many") return publish_many(command, holdings);
  if (what == "map_region") return map_region(command, holdings);
  if (what == "map_or_reserve") return map_or_reserve(command, holdings);
  if (what == "release_reservation") {
    auto released = holdings.session->release_reservation({command.at("reservation")});
    return released ? Answer{} : failure(released.error());
  }
  if (what == "store") return store(command, holdings);
  if (what != "remove_region") return std::nullopt;
  auto removed = holdings.session->remove_region(text_of(command.at("region")),
                                                 command.value("version", std::uint64_t{0}));
  return removed ? Answer{} : failure(removed.error());
}

}  // namespace gpumem::test
