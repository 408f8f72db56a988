// The style sheet of the page of `trifold report`.
#pragma once

#include <string_view>

namespace trifold {

inline constexpr std::string_view kPageStyle = R"(<style>
body{font:15px/1.45 Helvetica,Arial,'DejaVu Sans',sans-serif;color:#1f2933;margin:24px auto;max-width:1180px;padding:0 16px}
h1{font-size:24px;margin:0 0 4px}h2{font-size:19px;margin:32px 0 8px;border-bottom:1px solid #d9dee3}
table{border-collapse:collapse;font-size:13px}td,th{padding:3px 12px 3px 0;text-align:left;vertical-align:top;border-bottom:1px solid #eceff2}
td{overflow-wrap:anywhere}.number{text-align:right;white-space:nowrap}.differs{background:#fff4d6}
.key{display:inline-block;width:14px;height:4px;margin:0 6px 3px 0}.charts svg{margin:6px 8px 6px 0}
.charts text{font-size:11px;fill:#52606d;font-family:inherit}.charts .title{font-size:13px;font-weight:bold;fill:#1f2933}
.charts .left{text-anchor:end}.charts .below{text-anchor:middle}.grid{stroke:#e4e7eb}.axis{stroke:#9aa5b1}
.curve{fill:none;stroke-width:1.6;stroke-linejoin:round}.band{opacity:.22;stroke:none}.mark{stroke-width:1;stroke-dasharray:2 3}
.plan svg{max-width:100%;height:auto}.bad{color:#c00000}details{margin:8px 0}summary{cursor:pointer}
</style>
)";

}  // namespace trifold
