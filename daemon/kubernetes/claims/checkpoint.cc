#include "daemon/kubernetes/claims/checkpoint.h"

#include <sys/file.h>

#include <boost/crc.hpp>
#include <cerrno>
#include <cstdio>

#include "base/system/files.h"
#include "daemon/kubernetes/http/whole_file.h"

namespace gpumem::kubernetes {
namespace {

constexpr std::uint64_t kVersion = 1;

std::uint64_t checksum(const std::string& text) {
  boost::crc_32_type crc;
  crc.process_bytes(text.data(), text.size());
  return crc.checksum();
}

Json to_json(const PreparedShare& one) {
  return {{"request", one.share.request},  {"pool", one.share.pool}, {"device", one.share.device},
          {"shareID", one.share.share_id}, {"uuid", one.uuid},       {"guarantee", one.share.guarantee.count},
          {"limit", one.share.limit.count}};
}

Json to_json(const PreparedClaim& one) {
  Json pods = Json::array();
  for (const PodReference& pod : one.pods) pods.push_back({{"uid", pod.uid}, {"name", pod.name}});
  Json shares = Json::array();
  for (const PreparedShare& share : one.shares) shares.push_back(to_json(share));
  return {{"uid", one.claim.uid},         {"namespace", one.claim.space}, {"name", one.claim.name},
          {"standalone", one.standalone}, {"pods", std::move(pods)},      {"shares", std::move(shares)}};
}

PreparedShare read_prepared_share(const Json& json) {
  return {.share = {.request = text_field(json, {"request"}),
                    .pool = text_field(json, {"pool"}),
                    .device = text_field(json, {"device"}),
                    .share_id = text_field(json, {"shareID"}),
                    .guarantee = {count_field(json, {"guarantee"})},
                    .limit = {count_field(json, {"limit"})}},
          .uuid = text_field(json, {"uuid"})};
}

PreparedClaim read_prepared(const Json& json) {
  PreparedClaim one{.claim = {.space = text_field(json, {"namespace"}),
                              .name = text_field(json, {"name"}),
                              .uid = text_field(json, {"uid"})},
                    .standalone = field(json, {"standalone"}) == true,
                    .pods = {},
                    .shares = {}};
  for (const Json& pod : array_field(json, {"pods"}))
    one.pods.push_back({text_field(pod, {"uid"}), text_field(pod, {"name"})});
  for (const Json& share : array_field(json, {"shares"})) one.shares.push_back(read_prepared_share(share));
  return one;
}

}  // namespace

Result<StateLock> StateLock::take(const std::filesystem::path& folder) {
  const std::filesystem::path name = folder / "serialize.lock";
  UniqueFd file(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) return errno_error(errno, "cannot make " + name.string());
  while (::flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return errno_error(errno, "cannot lock " + name.string());
  }
  return StateLock(std::move(file));
}

Result<PreparedClaims> Checkpoint::load() const {
  auto text = read_text(file_);
  if (!text) return text.error();
  const Json json = parse_json(*text);
  if (const std::uint64_t version = count_field(json, {"version"}); version > kVersion)
    return Error{Code::kFailedPrecondition, file_.string() + " was written by a newer gpumem-dra (version " +
                                                std::to_string(version) +
                                                " of the file): run that one, or drain the node "
                                                "and remove the file"};
  const Json& state = field(json, {"claims"});
  const Json& sum = field(json, {"checksum"});
  if (!state.is_array() || sum != checksum(json_text(state)))
    return Error{Code::kInvalidArgument, file_.string() + " is damaged"};
  PreparedClaims claims;
  for (const Json& one : state) {
    PreparedClaim read = read_prepared(one);
    claims.insert_or_assign(read.claim.uid, std::move(read));
  }
  return claims;
}

Result<void> Checkpoint::save(const PreparedClaims& claims) const {
  Json state = Json::array();
  for (const auto& [uid, one] : claims) state.push_back(to_json(one));
  const std::uint64_t sum = checksum(json_text(state));
  return replace_file(
      file_, json_text({{"version", kVersion}, {"checksum", sum}, {"claims", std::move(state)}}) + "\n",
      0600);
}

Result<std::filesystem::path> Checkpoint::put_aside() const {
  const std::filesystem::path aside = file_.string() + ".damaged";
  if (std::rename(file_.c_str(), aside.c_str()) != 0)
    return errno_error(errno, "cannot rename " + file_.string());
  return aside;
}

}  // namespace gpumem::kubernetes
