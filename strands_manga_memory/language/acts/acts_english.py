"""Dialogue acts in English: rules for what carries weight."""

from __future__ import annotations

from strands_manga_memory.language.acts.act_rules import DialogueAct, Rule, rules
from strands_manga_memory.language.acts.stated import NO_NAME

_ADVERBS = (
    r"(?: (?:\w+ly|absolutely|just|also|still|always|never|only|much|kinda|do|would|am|don't|do not|can't|cannot|have to))*"
)
_THIS = r"(?! (?:this|that|it|these|those|the|your|you|to|both|him|her|them|some|how|what|when|one|a (?:lot|refill|look))\b)"

ENGLISH: tuple[Rule, ...] = (
    *rules(
        DialogueAct.PREFERENCE,
        "user",
        (
            "prefer prefers preferred preference preferences allergic allergy allergies spoilers",
            r"\b(?<!you )(?<!you'd )(?:prefers?(?! (?:not[.,!]|\w+ o'clock))|no spoilers)\b"
            r"|\bmy (?:\w+ ){0,3}preferences?\b|\bi (?:do )?have an? (?:\w+ ){0,2}preference (?:for|to)\b"
            r"|\bpreferences? (?:is|are|would be|include)\b"
            r"|\bpreferred \w+ (?:is|are)\b"
            r"|\b(?:i|we|my \w+)(?:'m| am| is| are) (?:\w+ )?allergic\b|\ballerg(?:y|ies)\b",
        ),
        (
            "favorite favorites favourite favourites",
            r"\bmy (?:\w+ )?(?:\w+ )?favou?rites?\b|\bfavou?rites? (?:of mine|for me)\b|\b(?:i|we) favou?r\b",
        ),
        (
            "love like enjoy adore hate dislike detest collect despise loathe appreciate value dread",
            rf"\b(?:i|we)(?:'d)?{_ADVERBS} "
            rf"(?:love|like|enjoy|adore|hate|dislike|detest|collect|despise|loathe|value|dread){_THIS}"
            r"(?= (?!.{0,40}\?\Z)\w{3,}| \w+ \w+)(?<!would like)(?<!'d like)",
            "i i'd we we'd",
        ),
        ("avoid avoiding", r"\b(?:i|must|need to|to|can't|cannot)(?: \w+ly)? avoid(?:ing)?\b"),
        (
            "fan into fond tired sick vegan vegetarian passionate fascinated interested intolerant afraid scared terrified"
            " uncomfortable sensitive averse drawn hesitant wary skeptical claustrophobic pescatarian minimalist introvert",
            r"\b(?:i'm|i am|i've been|i get|i feel)(?: \w+){0,3} (?:fan of|into|fond of|tired of|sick of|vegan|vegetarian"
            r"|passionate about"
            r"|fascinated by|(?:not|only|particularly|really|very|deeply) interested in|intolerant|(?:afraid|scared"
            r"|terrified) of|uncomfortable (?:with|in|around)"
            r"|sensitive to|averse to|drawn to|hesitant to|wary of|skeptical of|claustrophobic|pescatarian|minimalist"
            r"|introvert)\b",
        ),
        (
            "aversion dislike phobia intolerance intolerances fear passion preference disdain distaste hatred tolerance "
            "sensitivity"
            " celiac disease disability interest budget",
            r"\bi(?:'ve)?(?: (?:have|had|get|developed|suffer from))(?: (?:a|an|no|absolutely"
            r"|zero))?(?: [\w-]+){0,3} (?:aversion|dislike|phobia|intolerance|fear|passion"
            r"|disdain|distaste|hatred|tolerance|sensitivity|celiac|disability|interest in)\b",
        ),
        (
            "diet lifestyle beliefs intolerances",
            r"\b(?:i|we|my)\b.{0,120}\b(?:diet|lifestyle|religious beliefs|intolerances)\b(?![^.!]{0,200}\?)",
        ),
        (
            "always never usually mostly only exclusively strictly primarily typically rarely",
            r"\bi (?:always|never|usually|mostly|only|exclusively|strictly|primarily|typically|rarely) "
            r"(?:read|buy|want|use|watch|eat|choose|pick|wear|drink|listen|shop|travel|consume|purchase|work out|stay|play"
            r"|adhere|book|dine|order|adopt)\b",
            "i",
        ),
        (
            "eat drink wear consume watch tolerate support trust stand believe handle",
            r"\bi (?:(?:strictly|absolutely|simply|personally|generally) )?(?:don't|do not|cannot|can't|won't|will not"
            r"|refuse to) (?:eat|drink|wear|consume|watch|tolerate|support"
            r"|stand|believe in|handle|trust) (?!it\b|that\b|this\b|you\b|any ?more|so\b|him\b|her\b|them\b)\w+",
            "i",
        ),
        (
            "find",
            r"\bi find (?!out\b|it in\b|one\b|a\b)(?!.{0,200}\?)"
            r"[^,.]{0,80}(?:ing|ful|some|less|ious|ive|ult|dull|ant|able|ating)\b",
        ),
        (
            "me thing tea best",
            r"\b(?:doesn't|don't|do not|does not|never) (?:really )?(?:appeal to|interest|excite|work (?:well )?for"
            r"|suit) me\b|\bnot (?:really )?my (?:thing|cup of tea|style)\b"
            r"|\bi (?:learn|work|study|sleep) best\b|\bworks? best for me\b|\b(?:make|makes|making|give"
            r"|gives) me (?:feel )?(?:anxious|nauseous|sick|uncomfortable|dizzy|uneasy|nervous|claustrophobic)\b",
        ),
        (
            "struggle stick adhere follow prioritize opt lean gravitate thrive believe refuse against opposed",
            r"\bi (?:\w+ly )?(?:refuse to \w+ (?!you\b|it\b|that\b)|struggle (?:with|to)|stick to|adhere to|prioritize"
            r"|gravitate|thrive|opt for|lean toward|firmly believe|strongly believe)\b"
            r"|\bi follow (?:an?|strict|only)\b|\bi(?:'m| am)(?: \w+)? (?:against|opposed to) ",
        ),
        ("stand", r"\bcan(?:'t|not) stand\b"),
        ("rather", r"\b(?:i'd|i would|we'd) rather (?!you\b|get\b|have\b|go\b)|\bi'd rather not \w+ \w+"),
        (
            "please",
            r"\bplease (?:always|never|only)\b|\bplease (?:don't|do not) (?:show|send|recommend|suggest|use|include|mention"
            r"|spoil|give|tell|call)\b",
        ),
        ("budget limit", r"\bmy (?:budget|limit) is\b"),
        ("now", r"\bfrom now on\b"),
    ),
    *rules(
        DialogueAct.CORRECTION,
        "user",
        (
            "no nope nah wait sorry oops hold hmm",
            r"\A(?:no|nope|nah|wait|sorry|oops|hold on|hmm,? no)\b[,.! ]"
            r"(?! ?(?:thank|(?:strong )?preferences?\b|problem|worries|not (?:right )?(?:now|yet|today|just|at)|later|one|way"
            r"|prob|but|doubt|matter|need|can|could|please|just"
            r"|i(?:'m| am) (?:all )?(?:good|fine|set|done)|i (?:have|did|do|was|am|could|can|would)(?:n't| not)|i(?:'ve"
            r"| have) (?:never|not)|(?:to hear|'bout|about|for (?:the|your))\b|it (?:does|is|was)n't"
            r"|(?:i (?:think|believe) )?(?:that|this|it)(?:'s| is| will be|'ll be| should be| will do)(?: (?:all|it"
            r"|everything|okay|ok|fine)|\Z)))",
        ),
        (
            "scratch correction thought misunderstood misunderstand",
            r"\bscratch that\b|\bcorrection\b|\bon second thought\b|\bmisunderst(?:and|ood)\b",
        ),
        ("meant mean said asked", r"\bi (?:actually )?(?:meant|mean|said|asked for)\b", "i"),
        ("not", r"\bnot what i\b", "what"),
        (
            "not",
            r"\b(?:that|it|this)(?:'s| is| was) not (?:right|correct|what|the)\b",
            "that that's it it's this this's",
        ),
        (
            "wrong incorrect mistake mistaken",
            r"\b(?:that|it|this)(?:'s| is| was) (?:wrong|incorrect|a mistake|the wrong)\b"
            r"|\byou(?:'re| are|'ve| have)? (?:got (?:it|that|me) wrong|wrong|mistaken)\b",
        ),
        (
            "other others else another alternative alternatives different",
            r"\A(?=[^\n]{0,200}\Z)(?!.*\blet me know\b)"
            r"[^\n]{0,40}\b(?:any(?:thing|one|where|body)?|some(?:thing|one|where)?|what|who|which"
            r"|where|are there|is there|have|find|show|see|try|get|give|suggest"
            r"|recommend|for|about|look at|want|like|the)(?: me)?(?: (?:a|an|any|some|are|is))?(?: \w+)? (?:else|others?"
            r"|another|alternatives?|different)\b[^\n]{0,60}\Z"
            r"|\A(?:another|different|other)\b[^\n]{0,60}\Z",
        ),
        ("actually instead", r"\A(?:\w+[,.! ]+){0,2}actually\b|\bactually,? (?:i|make|it|can|could|let)\b|\binstead\b"),
        (
            "change switch correct update",
            r"\b(?:change|switch|correct|update) (?:it|that|this|the|my)\b",
        ),
    ),
    *rules(
        DialogueAct.DECISION,
        "user",
        (
            "take go book buy reserve order choose pick do confirm purchase decided",
            r"\bplease (?:do|make|go ahead)\b|\bi(?:'ll| will) (?:take|go with|go for|have|choose|pick|buy) (?:it|that|this"
            r"|the|them|one|both|those|these)\b|\blet's (?:go with|take|do)\b"
            r"|\b(?:book|buy|reserve|order|get|purchase|confirm) (?:it|that|this one|that one|them)\b|\bgo ahead\b"
            r"|\bi(?:'ve| have)? decided\b",
        ),
        (
            "sounds works good fine great perfect",
            r"\A(?:\w+[,.! ]+){0,4}(?:sounds?|works?|looks?|seems?|would be|(?:is|'s) (?:\w+ )?(?:fine|good|great|perfect"
            r"|okay|ok))\b(?: \w+){0,3}[.!]?\Z",
        ),
    ),
    *rules(
        DialogueAct.CONSTRAINT,
        "user",
        (
            "for",
            r"for (?<=\bfor )(?:\d+|one|two|three|four|five|six|seven|eight|nine|ten|myself|just me)(?: (?:people|persons?"
            r"|nights?|days?|guests?|adults?|tickets?|rooms?|of us))?\b",
            "0 one two three four five six seven eight nine ten myself just",
        ),
        (
            "under below less more between at up within",
            r"\b(?:under|below|less than|more than|at least|at most|no more than|up to|between|within) [$¥€£]?\d",
            "0",
        ),
        (
            "on until before after by this next",
            r"\b(?:on|until|before|after|by|this|next) (?:monday|tuesday|wednesday|thursday|friday|saturday|sunday"
            r"|january|february|march|april|june|july|august|september|october|november|december)\b",
            "monday tuesday wednesday thursday friday saturday sunday"
            " january february march april june july august september october november december",
        ),
        ("st nd rd th", r"\b(?:on|until|before|after|by|this|next) the \d+(?:st|nd|rd|th)\b"),
        ("at by after before around until", r"\b(?:at|by|after|before|around|until) \d{1,2}(?::\d\d| ?[ap]\.?m)\b", "0"),
        ("north south east west centre center", r"\bin the (?:north|south|east|west|cent(?:re|er))\b"),
        (
            "cheap cheaply expensive expensively moderate moderately",
            r"\b(?:cheap|expensive|moderate)(?:ly)?\b",
        ),
    ),
    *rules(
        DialogueAct.FACT,
        "user",
        (
            "remember note mind forget",
            r"(?:\A|[.!,;:] ?|\b(?:please|also|and|you|should|to) )(?<!do you )(?<!did you )(?<!have to )"
            r"(?:remember|note|keep in mind|(?:don't|do not) forget)(?: that\b|:|,? (?:i|my|our|we|i'm|i've)\b)",
        ),
        (
            "call called name names go",
            r"\b(?:call me|my (?:\w+ )?name(?:'s| is)|i(?:'m| am) called|i go by|address me as) "
            rf"{NO_NAME}\w",
        ),
        (
            "live living reside based moved from born grew speak",
            r"\b(?:i|we)(?:'m|'re| am| are| was| were)?(?: (?:currently|now|still|just|recently|both|originally|actually))? "
            r"(?:live|living|reside|residing|based|born|grew up|moved|from|come from)"
            r"(?: (?:in|at|near|on|to|with|outside))? (?!now\b)\w",
            "i i'm we we're",
        ),
        (
            "work job student teacher engineer nurse doctor developer designer lawyer writer chef artist musician accountant"
            " programmer scientist librarian",
            r"\bi(?:'m| am)? (?:currently |now )?(?:work|working) (?:as|at|for|in)\b|\bmy job is\b"
            r"|\bi(?:'m| am) an? (?:\w+ ){0,2}(?:student|teacher|engineer|nurse|doctor|developer|designer|lawyer|writer|chef"
            r"|artist|musician|accountant|programmer|scientist|librarian)\b",
        ),
        (
            "birthday anniversary age hometown nationality occupation timezone size height",
            r"\b(?:my|our) (?:[\w'-]+ ){0,3}(?:birthday|anniversary|age|hometown|nationality|occupation|timezone|size|height)"
            r"(?:'s| is| was| falls)\b",
        ),
        (
            "wife husband son daughter sister brother mother father mom dad partner girlfriend boyfriend dog cat kid kids child"
            " children sons daughters sisters brothers dogs cats twins",
            r"\b(?:my|our) (?:\w+ )?(?:wife|husband|son|daughter|sister|brother|mother|father|mom|dad|partner"
            r"|girlfriend|boyfriend|dog|cat|kids?|child(?:ren)?)(?:'s name)?"
            r"(?:'s| is| are| has| have| was| lives| works| loves| likes| hates| turns)\b"
            r"|\b(?:i|we) have (?:an?|one|two|three|four|\d{1,2}) (?:\w+ ){0,2}"
            r"(?:sons?|daughters?|sisters?|brothers?|dogs?|cats?"
            r"|kids?|child(?:ren)?|twins)\b",
        ),
        ("years old", r"\bi(?:'m| am) (?:\d{1,3}|\w+) years old\b"),
    ),
    *rules(
        DialogueAct.RECOMMENDATION,
        "assistant",
        (
            "recommend recommended recommends recommendation recommendations suggest suggested suggests suggestion suggestions",
            r"\b(?:recommend|suggest)",
        ),
        ("pick picks worth", r"\btop picks?\b|\bmy pick\b|\bworth (?:reading|a try|a look)\b"),
        ("how what why", r"\b(?:how|what) about\b|\bwhy not (?:try|start)\b"),
        ("perfect great", r"\bperfect (?:for|match)\b|\bgreat (?:choice|fit) (?:for|if)\b"),
        (
            "like love enjoy try consider check",
            r"\byou(?: might| may| could| should| would| will|'d|'ll)(?: also| really| probably)* "
            r"(?:like|love|enjoy|try|consider|check|want to (?:try|read|check))\b|\bconsider (?:trying|reading|the)\b",
        ),
        ("tried read considered seen", r"\b(?:have you|did you) (?:tried|try|read|considered|seen)\b"),
    ),
)
