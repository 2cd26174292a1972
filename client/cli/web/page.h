#pragma once
#include <string>
#include <string_view>

#include "gpumem/result.h"

namespace gpumem::cli::web {

extern const std::string_view kPageHtml;
extern const std::string_view kPageCss;
extern const std::string_view kPageJs;

struct Page {
  std::string html;
  std::string policy;  ///< Content-Security-Policy: only the page's own scripts and style
};

/// `charts`  the text of chart.js, which becomes part of the page; empty: the page has tables alone.
Page make_page(std::string_view charts);

/// The text of chart.js at `path`.
/// Errors  kNotFound: says which package has it. kInvalidArgument: it cannot stand inside a page.
Result<std::string> read_charts(const std::string& path = "/usr/share/javascript/chart.js/chart.min.js");

}  // namespace gpumem::cli::web
