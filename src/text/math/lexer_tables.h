// Tables of the lexer: commands by their meaning, characters beyond ASCII, units.
#pragma once

#include <array>
#include <string_view>
#include <utility>

namespace magister::math {

using Pair = std::pair<std::string_view, std::string_view>;

// Characters beyond ASCII with their form in ASCII or LaTeX; replaced before anything else.
constexpr auto kPlainSigns = std::to_array<Pair>({
    {"\u2212", "-"},
    {"\u2013", "-"},
    {"\u2010", "-"},
    {"\u2011", "-"},
    {"\u2012", "-"},
    {"\uFE63", "-"},
    {"\uFF0D", "-"},
    {"\u00D7", "*"},
    {"\u22C5", "*"},
    {"\u00B7", "*"},
    {"\u00F7", "/"},
    {"\u2264", "<="},
    {"\u2265", ">="},
    {"\u2260", "!="},
    {"\u2248", "\\approx "},
    {"\u2208", "\\in "},
    {"\u222A", "\\cup "},
    {"\u2229", "\\cap "},
    {"\u2205", "\\emptyset "},
    {"\u221E", "\\infty "},
    {"\u00B1", "\\pm "},
    {"\u2213", "\\mp "},
    {"\u221A", "\\sqrt "},
    {"\u00B0", "^\\circ "},
    {"\u00B2", "^2"},
    {"\u00B3", "^3"},
    {"\u2074", "^4"},
    {"\u211D", "\\mathbb{R}"},
    {"\u03B1", "\\alpha "},
    {"\u03B2", "\\beta "},
    {"\u03B3", "\\gamma "},
    {"\u03B4", "\\delta "},
    {"\u03B5", "\\epsilon "},
    {"\u03B8", "\\theta "},
    {"\u03BB", "\\lambda "},
    {"\u03BC", "\\mu "},
    {"\u03C0", "\\pi "},
    {"\u03C1", "\\rho "},
    {"\u03C3", "\\sigma "},
    {"\u03C6", "\\phi "},
    {"\u03D5", "\\phi "},
    {"\u03C9", "\\omega "},
    {"\u0394", "\\delta "},
    {"\u00A0", " "},
    {"\u2009", " "},
    {"\u202F", " "},
    {"\u3000", " "},
    {"\u20AC", ""},
    {"\u00A3", ""},
    {"\u00A5", ""},
    {"\uFF08", "("},
    {"\uFF09", ")"},
    {"\uFF0C", ","},
    {"\uFF1D", "="},
    {"\u2032", "'"},
    {"\u00BD", "\\frac{1}{2}"},
    {"\u00BC", "\\frac{1}{4}"},
    {"\u00BE", "\\frac{3}{4}"},
});

// Commands that stand for a sign.
constexpr auto kSignCommands = std::to_array<Pair>({
    {"cdot", "*"},
    {"times", "*"},
    {"ast", "*"},
    {"div", "/"},
    {"colon", ":"},
    {"le", "<="},
    {"leq", "<="},
    {"leqslant", "<="},
    {"leqq", "<="},
    {"ge", ">="},
    {"geq", ">="},
    {"geqslant", ">="},
    {"geqq", ">="},
    {"lt", "<"},
    {"gt", ">"},
    {"ne", "!="},
    {"neq", "!="},
    {"approx", "~"},
    {"simeq", "~"},
    {"doteq", "="},
    {"equiv", "="},
    {"coloneqq", "="},
    {"in", "in"},
    {"cup", "cup"},
    {"bigcup", "cup"},
    {"cap", "cap"},
    {"bigcap", "cap"},
    {"setminus", "setminus"},
    {"backslash", "setminus"},
    {"smallsetminus", "setminus"},
    {"pm", "+-"},
    {"mp", "-+"},
    {"lbrace", "\\{"},
    {"rbrace", "\\}"},
    {"lbrack", "["},
    {"rbrack", "]"},
    {"lparen", "("},
    {"rparen", ")"},
    {"mid", "|"},
    {"vert", "|"},
    {"lvert", "|"},
    {"rvert", "|"},
    {"lfloor", "lfloor"},
    {"rfloor", "rfloor"},
    {"lceil", "lceil"},
    {"rceil", "rceil"},
    {"langle", "("},
    {"rangle", ")"},
    {"circ", "degree"},
    {"degree", "degree"},
    {"prime", "'"},
    {"land", "and"},
    {"wedge", "and"},
    {"lor", "and"},
    {"vee", "and"},
    {"ldots", "dots"},
    {"dots", "dots"},
    {"cdots", "dots"},
    {"to", "to"},
    {"rightarrow", "to"},
    {"Rightarrow", "implies"},
    {"implies", "implies"},
    {"Longrightarrow", "implies"},
    {"iff", "implies"},
    {"Leftrightarrow", "implies"},
});

constexpr auto kIgnoredCommands = std::to_array<std::string_view>({
    "left",     "right",      "big",          "Big",       "bigg",         "Bigg",      "bigl",     "bigr",
    "Bigl",     "Bigr",       "displaystyle", "textstyle", "scriptstyle",  "quad",      "qquad",    "limits",
    "nolimits", "middle",     "hline",        "boxed",     "boldsymbol",   "pmb",       "bm",       "mathstrut",
    "strut",    "allowbreak", "bf",           "rm",        "it",           "therefore", "enspace",  "thinspace",
    "mathopen", "mathclose",  "ensuremath",   "underline", "displaylines", "hfill",     "nonumber", "notag",
});

// Commands with words in their braces.
constexpr auto kTextCommands =
    std::to_array<std::string_view>({"text", "textbf", "textit", "textrm", "textnormal", "textsf", "texttt", "mbox",
                                     "hbox", "mathrm", "mathbf", "mathit", "mathsf", "mathtt", "operatorname", "emph"});

constexpr auto kFunctions =
    std::to_array<std::string_view>({"sin",  "cos",  "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh",
                                     "cosh", "tanh", "ln",  "log", "lg",  "exp", "min",    "max",    "gcd",    "lcm"});

constexpr auto kConstructions = std::to_array<std::string_view>(
    {"frac",           "sqrt",  "binom", "begin",   "end",     "sum",   "prod", "overline", "mathbb",
     "choose",         "mod",   "bmod",  "pmod",    "int",     "lim",   "vec",  "hat",      "bar",
     "overrightarrow", "tilde", "dot",   "widehat", "mathcal", "infty", "pi",   "emptyset", "varnothing"});

// Words after a number that name its unit.
constexpr auto kUnits = std::to_array<std::string_view>({
    "cm",         "mm",        "km",      "dm",        "ft",          "in",       "inch",    "inches",    "feet",
    "foot",       "yd",        "yards",   "yard",      "mile",        "miles",    "kg",      "mg",        "ton",
    "tons",       "lb",        "lbs",     "oz",        "ounces",      "pound",    "pounds",  "sec",       "secs",
    "second",     "seconds",   "min",     "mins",      "minute",      "minutes",  "hr",      "hrs",       "hour",
    "hours",      "day",       "days",    "week",      "weeks",       "month",    "months",  "year",      "years",
    "ml",         "mL",        "liter",   "liters",    "litre",       "litres",   "gallon",  "gallons",   "cup",
    "cups",       "dollar",    "dollars", "cent",      "cents",       "yuan",     "euro",    "euros",     "rupees",
    "degree",     "degrees",   "deg",     "radians",   "unit",        "units",    "square",  "sq",        "cubic",
    "meter",      "meters",    "metre",   "metres",    "kmh",         "mph",      "people",  "students",  "apples",
    "points",     "times",     "digits",  "ways",      "hectare",     "hectares", "acres",   "bits",      "bytes",
    "USD",        "am",        "pm",      "per",       "each",        "more",     "th",      "st",        "nd",
    "rd",         "books",     "boys",    "girls",     "children",    "men",      "women",   "solutions", "integers",
    "numbers",    "values",    "pairs",   "triangles", "sides",       "faces",    "edges",   "cards",     "marbles",
    "balls",      "coins",     "tickets", "pages",     "steps",       "games",    "teams",   "players",   "pieces",
    "boxes",      "bottles",   "eggs",    "oranges",   "cookies",     "animals",  "trees",   "flowers",   "cars",
    "tables",     "chairs",    "trips",   "hats",      "pencils",     "pens",     "candies", "stickers",  "centimeters",
    "kilometers", "kilograms", "grams",   "gram",      "millimeters",
});
// Units of one letter count only if nothing follows.
constexpr std::string_view kShortUnits = "mgshltc";

}  // namespace magister::math
