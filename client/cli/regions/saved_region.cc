#include "client/cli/regions/saved_region.h"

#include <openssl/evp.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"

namespace gpumem::cli {
namespace {

constexpr std::string_view kMagic = "GMEMRGN1";
constexpr std::size_t kSizeAt = 8, kLayoutAt = 16, kDigestAt = 24;

void put_number(SavedHead::Text& text, std::size_t at, std::uint64_t number) {
  for (std::size_t i = 0; i < sizeof number; ++i) text.at(at + i) = static_cast<char>(number >> (8 * i));
}

std::uint64_t number_at(const SavedHead::Text& text, std::size_t at) {
  std::uint64_t number = 0;
  for (std::size_t i = sizeof number; i-- > 0;)
    number = number << 8 | static_cast<unsigned char>(text.at(at + i));
  return number;
}

Sha256 bytes_at(const SavedHead::Text& text, std::size_t at) {
  Sha256 bytes;
  std::copy_n(text.begin() + static_cast<std::ptrdiff_t>(at), bytes.size(), bytes.begin());
  return bytes;
}

Error bad_head(const std::string& why) { return {Code::kInvalidArgument, why}; }

}  // namespace

SavedHead::Text SavedHead::text() const {
  Text text{};
  std::ranges::copy(kMagic, text.begin());
  put_number(text, kSizeAt, size);
  put_number(text, kLayoutAt, layout);
  std::ranges::copy(digest, text.begin() + kDigestAt);
  std::ranges::copy(checksum, text.begin() + kChecksumAt);
  return text;
}

Result<SavedHead> SavedHead::parse(const Text& text, std::uint64_t bytes) {
  if (bytes < kBytes || !std::string_view(text.data(), text.size()).starts_with(kMagic))
    return bad_head(
        "it is no saved region: `gpumem regions save` writes one, `gpumem publish` takes any file");
  const SavedHead head{number_at(text, kSizeAt), number_at(text, kLayoutAt), bytes_at(text, kDigestAt),
                       bytes_at(text, kChecksumAt)};
  const std::uint64_t there = bytes - kBytes;
  if (there != head.size) {
    return bad_head("it has " + std::to_string(there) + " bytes of a region of " + std::to_string(head.size) +
                    (there < head.size ? ": it is truncated. Save the region again" : ". Save it again"));
  }
  if (head.size == 0 || head.layout > head.size) {
    return bad_head("it has a layout of " + std::to_string(head.layout) + " bytes in a region of " +
                    std::to_string(head.size) + ". Save the region again");
  }
  return head;
}

struct Checksum::State {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  GPUMEM_CHECK(state_->context != nullptr, "no memory for a checksum");
  GPUMEM_CHECK(EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr) == 1, "there is no SHA-256");
}

Checksum::~Checksum() = default;

void Checksum::add(std::span<const char> bytes) {
  GPUMEM_CHECK(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()) == 1, "SHA-256");
}

void Checksum::add_head(const SavedHead& head) {
  add(std::span<const char>(head.text()).first(SavedHead::kChecksumAt));
}

Sha256 Checksum::finish() {
  Sha256 sum{};
  GPUMEM_CHECK(EVP_DigestFinal_ex(state_->context.get(), sum.data(), nullptr) == 1, "SHA-256");
  return sum;
}

}  // namespace gpumem::cli
