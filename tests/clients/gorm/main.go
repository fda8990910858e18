// GORM on pgx: AutoMigrate twice, relations, batches, transactions, upserts, errors.
package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

type Team struct {
	gorm.Model
	Name    string   `gorm:"size:60;uniqueIndex;not null"`
	Members []Member `gorm:"constraint:OnDelete:CASCADE"`
}

type Member struct {
	ID      uint   `gorm:"primaryKey"`
	TeamID  uint   `gorm:"index:team_age,priority:1"`
	Email   string `gorm:"uniqueIndex:lower_email,expression:lower(email)"`
	Age     int    `gorm:"index:team_age,priority:2,sort:desc;check:age >= 0"`
	Active  bool   `gorm:"default:true;index:active,where:active"`
	Score   float64
	Photo   []byte
	Joined  time.Time
	Extra   map[string]any `gorm:"serializer:json;type:jsonb"`
	Skills  []Skill        `gorm:"many2many:member_skills;constraint:OnDelete:CASCADE"`
	Profile Profile        `gorm:"constraint:OnDelete:CASCADE"`
}

type Profile struct {
	ID       uint
	MemberID uint `gorm:"unique"`
	Text     string
}

type Skill struct {
	ID   uint
	Name string `gorm:"unique"`
}

func check(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "gorm: %s: %v\n", what, err)
		os.Exit(1)
	}
}

func expect(condition bool, what string, args ...any) {
	if !condition {
		check(errors.New("not as expected"), fmt.Sprintf(what, args...))
	}
}

func code(err error) string {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return answer.Code
	}
	return ""
}

func main() {
	db, err := gorm.Open(postgres.Open(os.Getenv("DRIVER_URL")), &gorm.Config{Logger: logger.Discard})
	check(err, "connect")
	all := []any{&Team{}, &Member{}, &Profile{}, &Skill{}}
	check(db.Migrator().DropTable("member_skills", &Profile{}, &Member{}, &Team{}, &Skill{}), "drop")
	check(db.AutoMigrate(all...), "first migration")
	check(db.AutoMigrate(all...), "second migration")
	expect(db.Migrator().HasIndex(&Member{}, "team_age") && db.Migrator().HasIndex(&Member{}, "active"), "indexes")
	expect(db.Migrator().HasConstraint(&Team{}, "Members"), "the foreign key")
	columns, err := db.Migrator().ColumnTypes(&Member{})
	check(err, "column types")
	expect(len(columns) == 9, "nine columns, not %d", len(columns))
	type Extended struct {
		Age  int64  `gorm:"column:age"`
		Nick string `gorm:"size:9;default:none"`
	}
	check(db.Table("members").AutoMigrate(&Extended{}), "a further column and another type")
	check(db.Migrator().RenameColumn(&Member{}, "nick", "nickname"), "rename")
	check(db.Migrator().DropColumn(&Member{}, "nickname"), "drop a column")

	skills := []Skill{{Name: "go"}, {Name: "sql"}, {Name: "tea"}}
	check(db.Create(&skills).Error, "skills")
	for number := range 5 {
		team := Team{Name: fmt.Sprintf("team %d", number)}
		for index := range 10 {
			team.Members = append(team.Members, Member{
				Email: fmt.Sprintf("M%d-%d@example.org", number, index), Age: 20 + index, Score: float64(index) / 3,
				Photo: []byte{0, 255, byte(index)}, Joined: time.Date(2024, 2, 29, 1, 2, 3, 4000, time.UTC),
				Extra: map[string]any{"n": index}, Skills: skills[:index%3], Profile: Profile{Text: "hello"},
				Active: true,
			})
		}
		check(db.Create(&team).Error, "a team with all that belongs to it")
	}
	var teams []Team
	byID := func(db *gorm.DB) *gorm.DB { return db.Order("id") }
	check(db.Preload("Members", byID).Preload("Members.Skills").Preload("Members.Profile").Order("id").Find(&teams).Error, "preload")
	expect(len(teams) == 5 && len(teams[4].Members) == 10 && len(teams[0].Members[2].Skills) == 2, "what belongs together")
	expect(teams[1].Members[3].Joined.Equal(time.Date(2024, 2, 29, 1, 2, 3, 4000, time.UTC)), "times")
	var rows []struct {
		Name string
		Mean float64
		Most int
	}
	check(db.Model(&Team{}).Select("teams.name, avg(members.score) mean, max(members.age) most").
		Joins("left join members on members.team_id = teams.id").Group("teams.name").Having("count(*) > ?", 9).
		Order("name desc").Limit(2).Scan(&rows).Error, "aggregates")
	expect(len(rows) == 2 && rows[0].Name == "team 4" && rows[0].Mean == 1.5 && rows[0].Most == 29, "aggregates: %v", rows)
	var found Member
	check(db.Joins("Profile").Where("lower(email) = ?", "m3-4@example.org").First(&found).Error, "find")
	expect(found.Age == 24 && found.Profile.Text == "hello" && found.Extra["n"] == 4.0 && found.Photo[1] == 255, "%+v", found)
	expect(errors.Is(db.First(&found, "email = ?", "nobody").Error, gorm.ErrRecordNotFound), "nothing found")

	expect(code(db.Create(&Team{Name: "team 1"}).Error) == "23505", "the same name twice")
	expect(code(db.Create(&Member{TeamID: 1, Email: "m0-0@EXAMPLE.org"}).Error) == "23505", "the same address twice")
	expect(code(db.Create(&Member{TeamID: 999, Email: "x"}).Error) == "23503", "no such team")
	expect(code(db.Create(&Member{TeamID: teams[0].ID, Email: "x", Age: -1}).Error) == "23514", "an age below nothing")
	check(db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.Assignments(
		map[string]any{"name": "GO"})}).Create(&[]Skill{{Name: "go"}, {Name: "new"}}).Error, "upsert")
	check(db.Where(Skill{Name: "fifth"}).FirstOrCreate(&Skill{}).Error, "first or create")
	result := db.Model(&Member{}).Where("age > ?", 25).Updates(map[string]any{"active": false, "score": gorm.Expr("score * ?", 2)})
	expect(result.Error == nil && result.RowsAffected == 20, "update of %d rows: %v", result.RowsAffected, result.Error)
	check(db.Delete(&teams[4]).Error, "soft delete")
	check(db.Unscoped().Delete(&Team{}, teams[3].ID).Error, "delete with cascade")
	var count int64
	check(db.Model(&Member{}).Count(&count).Error, "count")
	expect(count == 40, "members left: %d", count)

	err = db.Transaction(func(tx *gorm.DB) error {
		check(tx.Create(&Skill{Name: "outer"}).Error, "outer")
		inner := tx.Transaction(func(nested *gorm.DB) error {
			check(nested.Create(&Skill{Name: "inner"}).Error, "inner")
			return errors.New("undone")
		})
		expect(inner != nil, "the inner transaction is undone")
		return nil
	})
	check(err, "nested transactions")
	check(db.Model(&Skill{}).Where("name in ?", []string{"outer", "inner"}).Count(&count).Error, "count")
	expect(count == 1, "only the outer one is left")

	var workers sync.WaitGroup
	for range 4 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for range 10 {
				check(db.Transaction(func(tx *gorm.DB) error {
					var locked Skill
					if err := tx.Clauses(clause.Locking{Strength: "UPDATE"}).First(&locked, skills[1].ID).Error; err != nil {
						return err
					}
					return tx.Model(&locked).Update("name", locked.Name+"+").Error
				}), "one after the other")
			}
		}()
	}
	workers.Wait()
	var last Skill
	check(db.First(&last, skills[1].ID).Error, "last")
	expect(len(last.Name) == len("sql")+40, "no update is lost: %s", last.Name)
	names := 0
	check(db.Model(&Member{}).FindInBatches(&[]Member{}, 7, func(tx *gorm.DB, _ int) error {
		names += int(tx.RowsAffected)
		return nil
	}).Error, "batches")
	expect(names == 40, "in batches: %d", names)
	fmt.Println("gorm: migrations, relations, upserts, transactions, errors, contention")
}
