// Order of search results: guides before reference, examples, and pages that mention everything.
var Scorer = {
  score: ([page, title, , , score, , kind]) => {
    if (/^(CHANGELOG|README|index)$|guide\/(promises|comparison|evidence|glossary)$/.test(page)) return score - 6;
    if (page.startsWith("examples/")) return score - 4;
    if (kind === "object" && !page.startsWith("api/")) return score - 8;
    if (page.startsWith("reference/") || title.endsWith(".model_config")) return score - 6;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
