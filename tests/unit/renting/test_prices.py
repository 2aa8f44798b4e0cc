"""Price lists: what they offer, and what is wrong with them."""

from __future__ import annotations

import gzip
import json
import os
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import HeadwayError, InvalidInput
from headway.model.instant import HOUR, SECOND
from headway.model.renting import UNIT, Offer, offer_flaw
from headway.renting.formats import parse_prices, read_prices
from headway.renting.prices import PriceList, money_of

HEAD = "region,type,cores,memory,price,spot_price,start,billed,minimum,limit,speed\n"


def read(rows: str) -> PriceList:
    return parse_prices(HEAD + rows, source="list.csv")


def test_a_row_is_an_offer_and_one_more_that_can_be_taken_back() -> None:
    prices = read("# of May\neu,c5.large,2,4,0.096,0.035,90s,1,60,20,1.5\n\n")
    plain = Offer(
        *("aws", "c5.large", 2, 96_000, 1.5, 2, "c5.large"),
        minimum=60 * SECOND,
        start_time=90 * SECOND,
        limit=20,
    )
    assert prices.offers("aws", "eu") == (plain,)
    both = prices.offers("aws", "eu", spot=True)
    assert both == (plain, Offer(*("aws", "c5.large/spot", 2, 35_000, 1.5, 2, "c5.large"), SECOND, 60 * SECOND,
                                 90 * SECOND, 20, True))  # fmt: skip
    assert [offer_flaw(one) for one in both] == [None, None]


def test_what_is_not_given_is_as_in_any_offer() -> None:
    (offer,) = parse_prices("type,region,price,memory,cores\nsmall,here,1,4,2\n").offers("cloud", "here")
    assert offer == Offer("cloud", "small", 2, UNIT, 1.0, 2, "small")


def test_speeds_are_relative_to_a_reference() -> None:
    prices = read("eu,slow,1,1,1,,,,,,2.5\neu,fast,1,1,1,,,,,,3.5\n")
    assert [offer.speed for offer in prices.offers("aws", "eu", reference="slow")] == [1.0, 1.4]
    assert [offer.speed for offer in prices.offers("aws", "eu")] == [2.5, 3.5]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("eu,a,2,4,-0.1,,,,,,", "list.csv:2: price is '-0.1'; allowed: a number from 0 to 1000000, of an hour"),
        ("eu,a,2,4,,,,,,,", "list.csv:2: price is ''; allowed: a number from 0 to 1000000, of an hour"),
        ("eu,a,2,4,nan,,,,,,", "list.csv:2: price is 'nan'; allowed: a number"),
        ("eu,a,2,4,9e99,,,,,,", "list.csv:2: price is '9e99'; allowed: a number"),
        ("eu,a,2,4,1,-1,,,,,", "list.csv:2: spot_price is '-1'; allowed: a number"),
        (",a,2,4,1,,,,,,", "list.csv:2: region is ''; allowed: a name"),
        ("eu,a/spot,2,4,1,,,,,,", "list.csv:2: type is 'a/spot'; allowed: a name"),
        ("eu,a,0,4,1,,,,,,", "list.csv:2: cores is '0'; allowed: a whole number from 1"),
        ("eu,a,1.5,4,1,,,,,,", "list.csv:2: cores is '1.5'; allowed: a whole number from 1"),
        ("eu,a,2,-4,1,,,,,,", "list.csv:2: memory is '-4'; allowed: GiB"),
        ("eu,a,2,4,1,,soon,,,,", "list.csv:2: start is 'soon'; allowed: seconds, at most a day"),
        ("eu,a,2,4,1,,,0,,,", "list.csv:2: billed is '0'; allowed: seconds, at most a day, .*at least a second"),
        ("eu,a,2,4,1,,,,2d,,", "list.csv:2: minimum is '2d'; allowed: seconds, at most a day"),
        ("eu,a,2,4,1,,,,,-1,", "list.csv:2: limit is '-1'; allowed: a whole number from 0"),
        ("eu,a,2,4,1,,,,,,0", "list.csv:2: speed is '0'; allowed: a number from 1e-09"),
        ("eu,a,2,4,1", "list.csv:2: row is 'eu,a,2,4,1'; allowed: 11 cells"),
        (
            "eu,a,2,4,1,,,,,,\neu,b,2,4,1,,,,,,\neu,a,2,4,2,,,,,,",
            "list.csv:4: type is 'a'; allowed: one that region eu does not have yet; it stands in line 2",
        ),
        ("", "list.csv: price list is 'empty'; allowed: one row or more"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(row: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read(row)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("region,type,cores,memory", "list.csv:1: columns is .*; allowed: with price"),
        ("region,type,cores,memory,prise", "list.csv:1: column is 'prise'; .*\nDid you mean price"),
        ("region,type,cores,memory,price,price", "list.csv:1: column is 'price'; allowed: each once"),
        ('"', "list.csv:1: this is no row of a CSV"),
    ],
)
def test_wrong_columns_are_named(head: str, said: str) -> None:
    with pytest.raises(HeadwayError, match=said):
        parse_prices(head, source="list.csv")


def test_a_type_that_the_region_does_not_have_is_named_with_where_it_is() -> None:
    prices = read("eu,a,1,1,1,,,,,,\nus,a,1,1,1,,,,,,\nus,large,1,1,1,,,,,,\n")
    with pytest.raises(InvalidInput, match=r"type is 'large'; allowed: one of the 1 types of region eu\n.*had in us"):
        prices.offers("cloud", "eu", ["large"])
    with pytest.raises(InvalidInput, match=r"type is 'larg'; .*\nDid you mean large"):
        prices.offers("cloud", "us", ["larg"])
    with pytest.raises(InvalidInput, match="region is 'su'; allowed: one of eu, us"):
        prices.offers("cloud", "su")


# Public lists

EC2 = "name,class,vcpu,memory,price,clock_speed_ghz\n"


def test_a_list_of_ec2_says_what_it_leaves_out() -> None:
    prices = parse_prices(EC2 + ",,,,,\na1.medium,a1,1,2,0.0255,2.3\nmac1.metal,mac1,12,32,9999,3.2\nx,x,2,4,0.5,\n")
    assert [(row.region, row.type, row.price, row.speed) for row in prices.rows] == [
        ("us-east-1", "a1.medium", 25_500, 2.3),
        ("us-east-1", "x", 500_000, None),
    ]
    assert [(one.place, one.type, one.why) for one in prices.skipped] == [
        (2, "", "it has no name"),
        (4, "mac1.metal", "it has no price"),
    ]
    with pytest.raises(InvalidInput, match="reference is 'x'; allowed: types of which the list says how fast they are"):
        prices.offers("aws", "us-east-1", reference="a1.medium")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("a,a,1,2,-1,2.3", "prices:2: price is '-1'"),
        ("a,a,1,2,,2.3", "prices:2: price is ''"),
        ("a,a,none,2,1,2.3", "prices:2: vcpu is 'none'"),
        ("a,a,1,2,1,2.3\na,a,1,2,1,2.3", "prices:3: type is 'a'"),
    ],
)
def test_a_wrong_row_of_ec2_is_named(row: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        parse_prices(EC2 + row)


def of_json(**more: Any) -> list[dict[str, Any]]:
    one = {"instance_type": "m4.large", "vCPU": 2, "memory": 8.0, "ECU": 6.5}
    return [one | {"pricing": {"eu": {"linux": {"ondemand": "0.1"}}, "us": {"mswin": {}}}} | more]


def test_a_list_as_json_says_what_it_leaves_out() -> None:
    prices = parse_prices(json.dumps(of_json()))
    (row,) = prices.rows
    assert (row.region, row.type, row.cores, row.memory, row.price, row.speed) == (
        "eu",
        "m4.large",
        2,
        8,
        100_000,
        3.25,
    )
    assert [(one.place, one.type, one.why) for one in prices.skipped] == [
        (1, "m4.large", "it has no price for Linux in us")
    ]
    assert parse_prices(json.dumps(of_json(ECU="variable"))).rows[0].speed is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[{", "prices is not JSON"),
        ("{}", "content is 'dict'; allowed: a list"),
        ("[3]", r"\[0\] is 3; allowed: an object"),
        (json.dumps(of_json(vCPU=0)), r"\[0\].vCPU is '0'"),
        (
            json.dumps(of_json(pricing={"eu": {"linux": {"ondemand": "-1"}}})),
            r"\[0\].pricing.eu.linux.ondemand is '-1'",
        ),
        (json.dumps(of_json() + of_json()), r"\[1\].instance_type is 'm4.large'; .* also \[0\]"),
        (json.dumps(of_json(pricing={})), "price list is 'empty'"),
        ("[" * 100_000, "prices is not JSON"),
    ],
)
def test_wrong_json_is_named(content: str, said: str) -> None:
    with pytest.raises(HeadwayError, match=said):
        parse_prices(content)


def test_a_list_may_be_gzipped_and_must_be_text(tmp_path: Path) -> None:
    file = tmp_path / "list.csv.gz"
    file.write_bytes(gzip.compress((HEAD + "eu,a,2,4,1,,,,,,").encode()))
    assert read_prices(file).types("eu") == ["a"]
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(HeadwayError, match="is not text in utf-8"):
        read_prices(file)


DATA = Path(os.environ.get("HEADWAY_DATA", Path(__file__).parents[4] / "shared" / "data")) / "cloud"


@pytest.mark.data
@pytest.mark.skipif(not DATA.exists(), reason="there are no public logs here")
def test_public_lists_are_read() -> None:
    prices = read_prices(DATA / "ec2-us-east-1-instances-ondemand-reserved.csv")
    assert (len(prices.rows), len(prices.skipped)) == (762, 17)
    assert prices.priced("us-east-1", "m5.large").price == 96_000
    old = read_prices(DATA / "ec2instances-2017-10-all-regions.json.gz")
    assert len(old.regions) == 15
    assert old.priced("us-east-1", "m4.large").price == 100_000
    with pytest.raises(InvalidInput, match=r"type is 'p2.xlarge'"):
        old.priced("eu-west-2", "p2.xlarge")


# Bills


@given(st.decimals(0, 1_000_000, places=9))
def test_amounts_are_exact_or_rounded_up(amount: Decimal) -> None:
    assert 0 <= Fraction(money_of(str(amount)), UNIT) - Fraction(amount) < Fraction(1, UNIT)


@given(
    st.integers(0, 10**9), st.sampled_from([SECOND, 60 * SECOND, HOUR]), st.integers(0, HOUR), st.integers(0, 10**12)
)
def test_a_bill_is_what_exact_fractions_give(price: int, period: int, minimum: int, time: int) -> None:
    offer = Offer("cloud", "a", 1, price, period=period, minimum=minimum)
    billed = max(Fraction(minimum), -(Fraction(-max(1, time)) // period) * period)
    assert offer.bill(time) == -(-price * billed // HOUR)
    assert offer.billed(offer.billed(time)) == offer.billed(time) or minimum % period
