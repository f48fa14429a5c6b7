"""Catalogue of an invented manga shop: titles, volumes, stock and orders."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any


@dataclass(frozen=True)
class Manga:
    """Series of the shop. ``price_yen`` is the price of one volume, tax excluded."""

    asin: str
    title_ja: str
    title_en: str
    author: str
    genres: tuple[str, ...]
    volumes: int
    price_yen: int
    languages: tuple[str, ...]
    rating: float
    about_ja: str
    about_en: str


@dataclass(frozen=True)
class Order:
    """Order of the customer."""

    order_id: str
    asin: str
    volumes: tuple[int, ...]
    status: str
    placed: str
    arrives: str
    carrier: str
    address: str


CATALOGUE: tuple[Manga, ...] = (
    Manga(
        "B07X1234", "灯台守の星郵便", "The Lighthouse Star Post", "汐見 ほたる", ("fantasy", "slice of life"),
        12, 680, ("ja", "en"), 4.7,
        "流れ星に手紙を託す灯台守と、届かなかった一通を探す少女の静かな物語。",
        "A lighthouse keeper posts letters by shooting star; a girl looks for the one that never arrived.",
    ),
    Manga(
        "B07X2201", "硝子町の夜回り探偵", "The Night-Round Detective of Glass Town", "久遠 透", ("mystery",),
        36, 594, ("ja", "en"), 4.8,
        "血の流れない事件だけを引き受ける夜回りの探偵。手がかりはいつも硝子に映る。",
        "A watchman takes only cases without bloodshed; the clue is always a reflection in glass.",
    ),
    Manga(
        "B07X2318", "さかさま図書館の司書見習い", "Apprentice of the Upside-Down Library", "本条 栞", ("fantasy", "mystery"),
        9, 720, ("ja", "en"), 4.6,
        "天井に本棚が生える図書館で、失われた最終章を探す見習い司書。",
        "In a library whose shelves grow from the ceiling, an apprentice hunts for missing last chapters.",
    ),
    Manga(
        "B07X3105", "潮待ち食堂", "The Tide-Waiting Diner", "浜 さより", ("food", "slice of life"),
        18, 627, ("ja",), 4.5,
        "満ち潮を待つ船乗りのための小さな食堂。一話に一皿、一人の打ち明け話。",
        "A tiny diner for sailors who wait for the tide: one dish and one confession in each chapter.",
    ),
    Manga(
        "B07X3390", "鉄塔のうえのチェロ弾き", "The Cellist on the Steel Tower", "弓削 奏", ("music", "drama"),
        7, 792, ("ja", "en"), 4.3,
        "送電鉄塔を点検する青年が、町でいちばん高い場所でチェロを弾く。",
        "A lineman practises the cello at the highest point of his town.",
    ),
    Manga(
        "B07X4127", "ぽんこつ測量士、雲をゆく", "The Clumsy Surveyor Walks the Clouds", "空木 測", ("adventure", "comedy"),
        14, 640, ("ja", "en"), 4.4,
        "雲の上に国境を引く仕事を任された、方向音痴の測量士の旅。",
        "A surveyor without a sense of direction has to draw borders on clouds.",
    ),
    Manga(
        "B07X4412", "月面ねじ巻き工房", "The Moonside Winding Workshop", "歯車 いと", ("science fiction", "slice of life"),
        11, 748, ("ja", "en"), 4.6,
        "電気の届かない月の裏側で、ねじ巻きの機械を直す姉妹。",
        "Two sisters repair clockwork on the side of the moon where no power line reaches.",
    ),
    Manga(
        "B07X4580", "雪国時計商の帳簿", "Ledger of the Snow-Country Clock Dealer", "深雪 刻", ("historical", "mystery"),
        8, 770, ("ja",), 4.5,
        "明治の雪国。時計商の帳簿には、売った時計と、止まった理由が記されている。",
        "In a snowbound town a clock dealer writes down every clock he sold and why it stopped.",
    ),
    Manga(
        "B07X5033", "うたかた剣術指南", "Fencing Lessons for Bubbles", "泡沫 十郎", ("historical", "action"),
        21, 594, ("ja",), 4.1,
        "剣を抜かない剣術師範と、弟子になりたがる河童たち。",
        "A fencing master who never draws, and the river spirits who want to be his pupils.",
    ),
    Manga(
        "B07X5206", "放課後気象観測部", "After-School Weather Club", "日和 みつ", ("school", "comedy"),
        16, 561, ("ja", "en"), 4.2,
        "明日の天気を外しつづける高校の観測部が、町の祭りの日を決めることになる。",
        "A school club that is always wrong about tomorrow must choose the day of the town festival.",
    ),
    Manga(
        "B07X5541", "猫と踏切番", "The Cat and the Crossing Keeper", "遮断 きいろ", ("slice of life",),
        5, 660, ("ja", "en"), 4.8,
        "廃線の踏切を守り続ける老人と、時刻表どおりに現れる猫。",
        "An old man minds a crossing on a closed line; a cat arrives on time every day.",
    ),
    Manga(
        "B07X6014", "紙の城の王女は帰らない", "The Princess Will Not Return to the Paper Castle", "千代 折",
        ("fantasy", "romance"),
        13, 704, ("ja", "en"), 4.4,
        "折り紙の城から逃げ出した王女が、水の国の郵便配達になる。",
        "A princess runs from her paper castle and becomes a letter carrier in the land of water.",
    ),
    Manga(
        "B07X6178", "第七埠頭の幽霊会計士", "The Ghost Accountant of Pier Seven", "帳 しずか", ("mystery", "comedy"),
        10, 638, ("ja", "en"), 4.5,
        "死後も残業中の会計士が、帳簿の矛盾から港の事件を解く。",
        "An accountant who works overtime after death solves harbour crimes from the ledgers.",
    ),
    Manga(
        "B07X6490", "深海ラジオ", "Radio from the Deep", "海野 波", ("science fiction", "drama"),
        6, 737, ("ja", "en"), 4.3,
        "水深四千メートルの基地から、誰も聴いていないはずの番組を流す二人。",
        "Two people broadcast from four thousand metres down, to nobody, they think.",
    ),
    Manga(
        "B07X7025", "山小屋パン日記", "Bread Diary of a Mountain Hut", "麦野 こむぎ", ("food", "slice of life"),
        4, 693, ("ja",), 4.6,
        "標高二千四百メートル。気圧と戦いながらパンを焼く小屋番の一年。",
        "A year of baking against the thin air at two thousand four hundred metres.",
    ),
    Manga(
        "B07X7333", "赤錆騎士団", "Order of the Red Rust", "黒鉄 牙", ("dark fantasy", "action"),
        24, 616, ("ja", "en"), 4.0,
        "錆びた甲冑に取り憑かれた騎士たちの戦記。流血表現あり。",
        "A war chronicle of knights possessed by rusting armour. Contains graphic violence.",
    ),
    Manga(
        "B07X7719", "将棋盤の裏側", "The Underside of the Shogi Board", "香取 歩", ("drama", "games"),
        17, 605, ("ja",), 4.4,
        "盤の裏に彫られた謎の棋譜を追う、元奨励会員と盤師の娘。",
        "A former prodigy and a board maker's daughter follow a game carved under an old board.",
    ),
    Manga(
        "B07X8102", "ひとさじの雷", "A Spoonful of Thunder", "鳴神 あまね", ("romance", "food"),
        9, 671, ("ja", "en"), 4.2,
        "雷を料理に使う菓子職人と、雷が苦手な気象予報士の恋。",
        "A confectioner who cooks with lightning falls for a forecaster who is afraid of it.",
    ),
    Manga(
        "B07X8450", "回送列車に乗って", "Riding the Out-of-Service Train", "終電 まよい", ("mystery", "supernatural"),
        11, 682, ("ja", "en"), 4.7,
        "回送列車に乗り込んだ人だけがたどり着く駅で、忘れ物を探す車掌。",
        "Who boards the out-of-service train gets off at a station of lost things; the conductor searches for one.",
    ),
    Manga(
        "B07X8866", "こだま荘の下宿人たち", "Lodgers of Echo House", "山彦 よぶ", ("romance", "slice of life"),
        15, 583, ("ja", "en"), 4.3,
        "声が一日遅れで返ってくる下宿屋で、言えなかった言葉を待つ人々。",
        "In a boarding house where echoes come back a day late, the lodgers wait for what was left unsaid.",
    ),
)  # fmt: skip

ORDERS: tuple[Order, ...] = (
    Order(
        "ORD-48213",
        "B07X1234",
        (1, 2),
        "shipped",
        "2026-11-02",
        "2026-11-06",
        "Tsubame Express",
        "home",
    ),
    Order(
        "ORD-48377",
        "B07X2318",
        (1, 2, 3),
        "preparing",
        "2026-11-04",
        "2026-11-09",
        "Tsubame Express",
        "home",
    ),
    Order(
        "ORD-48502",
        "B07X5541",
        (1, 2, 3, 4, 5),
        "delivered",
        "2026-10-20",
        "2026-10-23",
        "Minato Post",
        "office",
    ),
)

_BLURBS = (
    "閉店後の温室で割れた鏡。映っていたのは一人多い客だった。",
    "雨の夜だけ鳴る風鈴の持ち主を、硝子職人の孫が探しに来る。",
    "消えた懐中時計は盗まれたのではなく、返されただけだった。",
    "向かいの窓の灯りが三日続けて同じ時刻に消える、その理由。",
    "万華鏡の中に隠された住所。夜回りは初めて町の外へ出る。",
    "A jeweller reports a theft that the shop window says never happened.",
    "Three lenses, three witnesses, and only one of them was looking.",
    "The detective is hired by the suspect, and the fee is a marble.",
    "A frosted pane keeps the outline of a hand that nobody owns.",
)


def find(asin: str) -> Manga:
    """Return the series with this ASIN. Raises ``LookupError`` if there is none."""
    for manga in CATALOGUE:
        if manga.asin == asin:
            return manga
    raise LookupError(f"no manga with ASIN {asin!r} in the catalogue")


def search(
    query: str = "", *, genre: str | None = None, max_price_yen: int | None = None, limit: int = 5
) -> list[Manga]:
    """Return the best rated series that match words, genre and the price of a volume."""
    words = query.lower().split()
    hits = [
        manga
        for manga in CATALOGUE
        if all(word in _searchable(manga) for word in words)
        and (genre is None or genre.lower() in manga.genres)
        and (max_price_yen is None or manga.price_yen <= max_price_yen)
    ]
    return sorted(hits, key=lambda manga: -manga.rating)[:limit]


def volumes(asin: str) -> list[dict[str, Any]]:
    """Return each volume of a series: release date, price, stock and a sentence about it."""
    manga = find(asin)
    first = date(2016, 4, 15)
    return [
        {
            "volume": number,
            "sku": f"{asin}-{number:02d}",
            "released": (first + timedelta(days=104 * (number - 1))).isoformat(),
            "chapters": f"{5 * number - 4}-{5 * number}",
            "pages": 184 + number * 7 % 24,
            "price_yen": manga.price_yen,
            "stock": _stock(asin, number),
            "editions": list(manga.languages),
            "about": _BLURBS[number % len(_BLURBS)],
        }
        for number in range(1, manga.volumes + 1)
    ]


def stock(asin: str, volume: int) -> dict[str, Any]:
    """Return the number of copies of a volume, and the day of their shipment."""
    manga = find(asin)
    if not 1 <= volume <= manga.volumes:
        raise LookupError(f"{manga.title_en} has volumes 1 to {manga.volumes}, not {volume}")
    copies = _stock(asin, volume)
    leaves = "today" if copies else "in 6 days"
    return {
        "asin": asin,
        "volume": volume,
        "copies": copies,
        "warehouse": "Kawasaki",
        "leaves": leaves,
    }


def order(order_id: str) -> dict[str, Any]:
    """Return an order with its titles. Raises ``LookupError`` if there is none."""
    for known in ORDERS:
        if known.order_id == order_id:
            manga = find(known.asin)
            return {**asdict(known), "title_ja": manga.title_ja, "title_en": manga.title_en}
    raise LookupError(f"no order {order_id!r}; order ids look like ORD-48213")


def _searchable(manga: Manga) -> str:
    fields = (
        manga.asin,
        manga.title_ja,
        manga.title_en,
        manga.author,
        *manga.genres,
        manga.about_ja,
        manga.about_en,
    )
    return " ".join(fields).lower()


def _stock(asin: str, volume: int) -> int:
    """Return a plausible number of copies, the same in every process."""
    return (int(asin[-4:], 16) * 31 + volume * 17) % 23
