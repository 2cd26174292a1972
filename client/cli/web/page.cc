#include "client/cli/web/page.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <array>

#include "base/system/files.h"

namespace gpumem::cli::web {
namespace {

// As a policy names a script or a style.
std::string hash_of(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  ::SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  std::array<unsigned char, 4 * ((SHA256_DIGEST_LENGTH + 2) / 3) + 1> base64{};
  ::EVP_EncodeBlock(base64.data(), digest.data(), static_cast<int>(digest.size()));
  return std::string("'sha256-") + reinterpret_cast<const char*>(base64.data()) + "'";
}

// Puts `element` with `text` in place of the comment of that name.
void fill(std::string& html, const std::string& name, const std::string& element, std::string_view text) {
  const std::string place = "<!--" + name + "-->";
  html.replace(html.find(place), place.size(),
               "<" + element + ">" + std::string(text) + "</" + element + ">");
}

}  // namespace

Page make_page(std::string_view charts) {
  Page page{std::string(kPageHtml), {}};
  fill(page.html, "style", "style", kPageCss);
  fill(page.html, "charts", "script", charts);
  fill(page.html, "script", "script", kPageJs);
  page.policy = "default-src 'none'; script-src " + hash_of(charts) + " " + hash_of(kPageJs) +
                "; style-src " + hash_of(kPageCss) +
                "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                "frame-ancestors 'none'; require-trusted-types-for 'script'";
  return page;
}

Result<std::string> read_charts(const std::string& path) {
  auto text = read_text(path);
  if (!text)
    return Error{Code::kNotFound,
                 "there are no charts, only tables: install libjs-chart.js (" + text.error().message + ")"};
  // A browser would end the script there, or hash another text than this.
  for (const char* word : {"</script", "<!--", "\r"})
    if (text->find(word) != std::string::npos)
      return Error{Code::kInvalidArgument,
                   "there are no charts, only tables: " + path + " has '" + word + "'"};
  return text;
}

}  // namespace gpumem::cli::web
